package process

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// stranger is a user ID without processes that is never assigned: the highest possible one.
const stranger = 1<<32 - 2

// killUser kills the processes of a user.
func killUser(user uint32) error {
	err := killAtOnce(user)
	if err == nil {
		return nil
	}
	if each := killEach(user); each != nil {
		return errors.Join(err, each)
	}
	return nil
}

// killAtOnce kills the processes of a user with one kill(2) of all processes that a thread of
// this user may signal. Forking does not evade it: the kernel blocks forks meanwhile, and a
// signalled process can't fork afterwards. So it also ends fork bombs, which would outrun
// killing processes one by one.
func killAtOnce(user uint32) error {
	if r, e, s := unix.Getresuid(); r != 0 || e != 0 || s != 0 {
		return fmt.Errorf("the server's user ids are %d, %d and %d: want root", r, e, s)
	}
	running, err := processes()
	if err != nil {
		return err
	}
	for pid, c := range running {
		if c.of(stranger) {
			return fmt.Errorf("process %d belongs to user %d, which must have none", pid, uint32(stranger))
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := killAs(user)
		if unix.Getuid() == 0 && unix.Geteuid() == 0 {
			runtime.UnlockOSThread() // otherwise the thread ends with this goroutine
		}
		done <- err
	}()
	return <-done
}

// killAs kills with the permissions of a user, which only the calling thread assumes.
// Permission to signal depends on the sender's real and effective user and the target's real
// and saved user. So the thread assumes the user as its effective user only: if it were the
// real one too, the user's processes could kill the thread, and the server with it. The real
// user can't be root either, as root's processes would then be killed.
func killAs(user uint32) error {
	if err := setUsers(stranger, user, 0); err != nil {
		return err
	}
	err := rightless(user)
	if err == nil {
		err = unix.Kill(-1, unix.SIGKILL)
	}
	return errors.Join(err, setUsers(0, 0, 0))
}

// rightless returns an error if the calling thread may signal processes of other users.
func rightless(user uint32) error {
	if r, e := unix.Getuid(), unix.Geteuid(); uint32(r) != stranger || uint32(e) != user {
		return fmt.Errorf("the thread's user ids are %d and %d: want %d and %d", r, e, uint32(stranger), user)
	}
	header, sets := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read the thread's capabilities: %w", err)
	}
	if sets[0].Effective != 0 || sets[1].Effective != 0 {
		return fmt.Errorf("user %d has capabilities: %x, %x", user, sets[0].Effective, sets[1].Effective)
	}
	return nil
}

// setUsers sets the user IDs of the calling thread only, unlike syscall.Setresuid.
func setUsers(real, effective, saved uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(real), uintptr(effective), uintptr(saved))
	if errno != 0 {
		return fmt.Errorf("become the users %d, %d and %d: %w", real, effective, saved, errno)
	}
	return nil
}
