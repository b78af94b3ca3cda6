# Works in a mounted directory as a script says, a step a line, and writes what came of each step: `N ok VALUE` or `N errno NUMBER`.
# Usage: perl agent.pl DIR SCRIPT [DEVICE]    DEVICE is the kernel's, for what asks it about quotas. For x86_64 and arm64.
my ($dir, $script, $device) = @ARGV;
chomp(my $machine = `uname -m`);
# fallocate, quotactl, setxattr
my ($FALLOCATE, $QUOTACTL, $SETXATTR) = $machine eq 'aarch64' ? (47, 60, 5) : (285, 179, 188);
my ($FSGETXATTR, $FSSETXATTR, $SHUTDOWN) = (0x801c581f, 0x401c5820, 0x8004587d);
my ($Q_SYNC, $Q_GETINFO, $Q_SETINFO, $Q_GETQUOTA, $Q_SETQUOTA, $Q_GETNEXTQUOTA) =
    map { (0x800000 | $_) << 8 } 1, 5, 6, 7, 8, 9;
my @held;

sub place { $_[0] eq '.' ? $dir : "$dir/$_[0]" }

sub opened {
    my ($path, $how) = @_;
    sysopen(my $file, place($path), $how) or return;
    return $file;
}

# The kernel tells a server of FUSE a moment later that it has forgotten a file, which is deleted then.
sub forgotten { select(undef, undef, undef, 0.02); 'done' }

sub syscalled { my $got = syscall(shift, @_); $got == -1 ? undef : 'done' }

sub allocated {
    my ($mode, $path, $offset, $bytes) = @_;
    my $file = opened($path, 1) or return;
    return syscalled($FALLOCATE, fileno($file), $mode, $offset + 0, $bytes + 0);
}

# `struct fsxattr` of an inode after a change.
sub flagged {
    my ($path, $change) = @_;
    my $file = opened($path, 0) or return;
    my $bytes = "\0" x 28;
    ioctl($file, $FSGETXATTR, $bytes) or return;
    my @fields = unpack('L5 a8', $bytes);
    $change->(\@fields);
    return ioctl($file, $FSSETXATTR, my $back = pack('L5 a8', @fields)) && 'done';
}

# `struct if_nextdqblk`: hard, soft and current space, hard, soft and current inodes, times of both, which are valid, the id.
sub quota {
    my ($command, $type, $id, $bytes) = @_;
    my $got = syscall($QUOTACTL, $command | $type, my $name = $device, $id + 0, $_[3]);
    return $got == -1 ? undef : 'done';
}

my %steps = (
    user => sub {
        my ($uid, $gid, @groups) = @_;
        $> = 0;
        $) = join(' ', $gid, @groups ? @groups : $gid);
        $> = $uid;
        return 'done';
    },
    create => sub { opened($_[0], 01 | 0100 | 0200) && 'done' },
    mkdir => sub { mkdir(place($_[0]), 0777) && 'done' },
    write => sub {
        my ($path, $offset, $bytes) = @_;
        my $file = opened($path, 1) or return;
        sysseek($file, $offset, 0);
        return syswrite($file, 'q' x $bytes);
    },
    truncate => sub { truncate(place($_[0]), $_[1]) && 'done' },
    allocate => sub { allocated(0, @_) },
    keep => sub { allocated(1, @_) },
    punch => sub { allocated(3, @_) },
    zero => sub { allocated(16, @_) },
    chown => sub { my ($path, $uid, $gid) = @_; chown($uid, $gid, place($path)) && 'done' },
    chmod => sub { chmod(oct($_[1]), place($_[0])) && 'done' },
    project => sub { my $id = $_[1]; flagged($_[0], sub { $_[0][3] = $id }) },
    inherit => sub { flagged($_[0], sub { $_[0][0] ^= 0x200 }) },
    xattr => sub {
        my ($path, $bytes) = (place($_[0]), $_[1] + 0);
        return syscalled($SETXATTR, $path, my $name = 'user.a', my $value = 'v' x $bytes, $bytes, 0);
    },
    link => sub { link(place($_[0]), place($_[1])) && 'done' },
    symlink => sub { symlink('t' x $_[1], place($_[0])) && 'done' },
    rename => sub { rename(place($_[0]), place($_[1])) && forgotten() },
    unlink => sub { unlink(place($_[0])) && forgotten() },
    rmdir => sub { rmdir(place($_[0])) && 'done' },
    hold => sub { my $file = opened($_[0], 0) or return; push @held, $file; 'done' },
    drop => sub { @held = (); 'done' },
    sync => sub { system('sync') == 0 && 'done' },
    sleep => sub { sleep($_[0]); 'done' },
    # What `df` shows, in blocks and inodes.
    df => sub {
        my @blocks = split(' ', (split("\n", `stat -f -c '%b %f %a %c %d' $dir/$_[0]`))[0]);
        return join(',', @blocks);
    },
    crash => sub {
        my $file = opened('.', 0) or return;
        return ioctl($file, $SHUTDOWN, my $bytes = pack('L', 2)) && 'done';
    },
    setquota => sub {
        my ($type, $id, @limits) = @_;
        # Space in KiB: soft, hard; inodes: soft, hard.
        my $bytes = pack('Q8 L L', $limits[1], $limits[0], 0, $limits[3], $limits[2], 0, 0, 0, 1 | 4, 0);
        return quota($Q_SETQUOTA, $type, $id, $bytes);
    },
    setgrace => sub {
        my ($type, $space, $inodes) = @_;
        return quota($Q_SETINFO, $type, 0, my $bytes = pack('Q2 L2', $space, $inodes, 0, 3));
    },
    grace => sub {
        my $bytes = "\0" x 24;
        quota($Q_GETINFO, $_[0], 0, $bytes) or return;
        return join(',', (unpack('Q2', $bytes))[0, 1]);
    },
    # Of some ids: id, bytes, inodes.
    usage => sub {
        my ($type, @ids) = @_;
        my @all;
        for my $id (@ids) {
            my $bytes = "\0" x 72;
            quota($Q_GETQUOTA, $type, $id, $bytes) or return;
            my (undef, undef, $space, undef, undef, $inodes) = unpack('Q6', $bytes);
            push @all, join(':', $id, $space, $inodes);
        }
        return join(',', @all);
    },
    # Of all ids: id, bytes, inodes, soft and hard limits of both.
    quotas => sub {
        my ($type, $next, @all) = ($_[0], 0);
        quota($Q_SYNC, $type, 0, my $none = '');
        while (1) {
            my $bytes = "\0" x 80;
            last if !quota($Q_GETNEXTQUOTA, $type, $next, $bytes);
            my ($hard, $soft, $space, $ihard, $isoft, $inodes, $time, $itime, $valid, $id) =
                unpack('Q8 L L', $bytes);
            push @all, join(':', $id, $space, $inodes, $soft, $hard, $isoft, $ihard);
            last if $id == 4294967294;
            $next = $id + 1;
        }
        return join(',', @all) || 'none';
    },
);

open(my $lines, '<', $script) or die "$script: $!";
my $number = 0;
$| = 1;
while (my $line = <$lines>) {
    chomp $line;
    last if $line eq 'end';
    my ($verb, @words) = split(' ', $line);
    my $value = $steps{$verb}->(@words);
    my $result = $value ? "ok $value" : 'errno ' . ($! + 0);
    # On a line of its own, for a kernel may write to the same console.
    print "\nR $number $result\n";
    $number++;
}
$> = 0;
print "\nR end\n";
