package rpc

import (
	"fmt"
	"runtime/debug"
)

// Aside runs f on another goroutine and waits for it. A stream's goroutine lives as long as
// the stream and keeps the stack that it once needed, which for thousands of streams would be
// most of a server's memory. So it only waits, and deeper calls run aside. A panic of f is
// returned as an error with its location.
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
