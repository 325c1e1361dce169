package process

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// withoutGain calls start so that processes it starts never gain privileges (no_new_privs, see
// prctl(2)): a set-user-ID file left behind by a user's earlier instance is useless.
func withoutGain(start func() error) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the flag is the thread's, which ends with this goroutine.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			done <- fmt.Errorf("set no_new_privs: %w", err)
			return
		}
		done <- start()
	}()
	return <-done
}
