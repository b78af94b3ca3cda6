// Makes a disk, writes a file from several goroutines, lists its directory and reads the file back.
//
// Usage, once libextant is installed: go run . disk.img
package main

/*
#cgo pkg-config: extant
#include <extant.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Error is a failure of the library. It unwraps to its errno, so errors.Is(err, fs.ErrNotExist) holds where it should.
type Error struct {
	Errno   syscall.Errno
	Kind    uint32
	Message string
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Errno }

// check turns the result of a call and what the call said of a failure into a Go error.
func check(result C.int64_t, failure *C.extant_error) (int64, error) {
	if result < 0 {
		return 0, &Error{syscall.Errno(failure.code), uint32(failure.kind), C.GoString(&failure.message[0])}
	}
	return int64(result), nil
}

// withPath gives a path to C for one call.
func withPath(path string, call func(path *C.char, failure *C.extant_error) C.int64_t) (int64, error) {
	var failure C.extant_error
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	return check(call(cPath, &failure), &failure)
}

// makeDisk makes an image file with a file system, and mounts it.
func makeDisk(path string, bytes uint64) (*C.extant_fs, error) {
	var device *C.extant_device
	var fs *C.extant_fs
	var failure C.extant_error
	_, err := withPath(path, func(path *C.char, failure *C.extant_error) C.int64_t {
		return C.int64_t(C.extant_device_create(path, C.uint64_t(bytes), &device, failure))
	})
	if err != nil {
		return nil, err
	}
	// The mount keeps the device.
	defer C.extant_device_close(device)
	if _, err := check(C.int64_t(C.extant_mkfs(device, nil, &failure)), &failure); err != nil {
		return nil, err
	}
	_, err = check(C.int64_t(C.extant_mount(device, nil, &fs, &failure)), &failure)
	return fs, err
}

// use writes, lists and reads.
func use(fs *C.extant_fs) error {
	var file *C.extant_file
	_, err := withPath("/dir", func(path *C.char, failure *C.extant_error) C.int64_t {
		return C.int64_t(C.extant_mkdir(fs, path, 0o755, failure))
	})
	if err != nil {
		return err
	}
	_, err = withPath("/dir/numbers", func(path *C.char, failure *C.extant_error) C.int64_t {
		flags := C.uint32_t(C.EXTANT_READ | C.EXTANT_WRITE | C.EXTANT_CREATE)
		return C.int64_t(C.extant_open(fs, path, flags, 0o644, &file, failure))
	})
	if err != nil {
		return err
	}
	defer C.extant_close(file)

	var group sync.WaitGroup
	failed := make([]error, 8)
	for i := range failed {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			var failure C.extant_error
			line := []byte(fmt.Sprintf("%d\n", i))
			written := C.extant_pwrite(file, unsafe.Pointer(&line[0]), C.uint64_t(len(line)), C.uint64_t(2*i), &failure)
			_, failed[i] = check(written, &failure)
		}(i)
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}

	var dir *C.extant_dir
	var entry C.extant_dirent
	var failure C.extant_error
	_, err = withPath("/dir", func(path *C.char, failure *C.extant_error) C.int64_t {
		return C.int64_t(C.extant_opendir(fs, path, &dir, failure))
	})
	if err != nil {
		return err
	}
	defer C.extant_closedir(dir)
	for {
		found, err := check(C.int64_t(C.extant_readdir(dir, &entry, &failure)), &failure)
		if err != nil {
			return err
		}
		if found == 0 {
			break
		}
		fmt.Println(C.GoString(&entry.name[0]))
	}

	content := make([]byte, 64)
	read, err := check(C.extant_read(file, unsafe.Pointer(&content[0]), C.uint64_t(len(content)), &failure), &failure)
	if err != nil {
		return err
	}
	fmt.Printf("%q\n", content[:read])

	_, err = withPath("/none", func(path *C.char, failure *C.extant_error) C.int64_t {
		return C.int64_t(C.extant_unlink(fs, path, failure))
	})
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("a file that is not there: %w", err)
	}
	fmt.Println(err)
	return nil
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: example DISK")
	}
	fs, err := makeDisk(os.Args[1], 64<<20)
	if err != nil {
		log.Fatal(err)
	}
	err = use(fs)
	var failure C.extant_error
	_, unmounted := check(C.int64_t(C.extant_unmount(fs, &failure)), &failure)
	if err := errors.Join(err, unmounted); err != nil {
		log.Fatal(err)
	}
}
