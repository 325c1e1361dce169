package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// checkPorts says which port is taken before anything is started: a component
// that can't bind would only be restarted in vain.
func checkPorts(ctx context.Context, components []*component) error {
	addrs := []string{storeAddr}
	for _, c := range components[1:] {
		for i := 0; i+1 < len(c.spec.Args); i++ {
			switch c.spec.Args[i] {
			case "--health-addr", "--election-addr", "--registration-addr", "--operator-addr", "--agent-addr",
				"--addr", "--health-probe-bind-address":
				addrs = append(addrs, c.spec.Args[i+1])
			}
		}
	}
	var taken []error
	for _, addr := range addrs {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		switch {
		case err == nil:
			l.Close()
		case errors.Is(err, syscall.EADDRINUSE):
			taken = append(taken, fmt.Errorf("port of %s is taken by another program: stop that program first", addr))
		default:
			taken = append(taken, fmt.Errorf("try %s: %w", addr, err))
		}
	}
	return errors.Join(taken...)
}
