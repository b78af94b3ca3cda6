// The header is C++ too, and its structures have the sizes of every libextant.so.0.
#include "extant.h"

#include <cstring>

static_assert(sizeof(extant_error) == 1024, "extant_error");
static_assert(sizeof(extant_time) == 16, "extant_time");
static_assert(sizeof(extant_attributes) == 168, "extant_attributes");
static_assert(sizeof(extant_dirent) == 272, "extant_dirent");
static_assert(sizeof(extant_usage) == 120, "extant_usage");
static_assert(sizeof(extant_callbacks) == 96, "extant_callbacks");
static_assert(sizeof(extant_mkfs_options) == 88, "extant_mkfs_options");
static_assert(sizeof(extant_mount_options) == 56, "extant_mount_options");

int main()
{
    extant_error error;
    extant_fs *fs = nullptr;
    const int result = extant_mount(nullptr, nullptr, &fs, &error);
    return result < 0 && error.kind == EXTANT_ERROR_ARGUMENT && std::strlen(extant_version()) > 0 ? 0 : 1;
}
