package rpc

import (
	"fmt"
	"runtime/debug"
)

// Aside runs f on a goroutine of its own and waits for it. The goroutine of a
// stream lives for as long as the stream and never gives back the stack that it
// once needed, which for thousands of them would be most of a server's memory.
// So it is left to wait, and what goes deeper than that is done aside. A panic
// of f is an error that says where it was.
func Aside(f func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		done <- f()
	}()
	return <-done
}
