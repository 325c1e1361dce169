package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	gopsnet "github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
)

// maxPortOffset keeps all ports below the range from which Linux takes those of connections.
const maxPortOffset = 20000

func (c Config) port(usual int) int { return usual + c.PortOffset }

func (c Config) storeAddr() string      { return loopback(c.port(8989)) }
func (c Config) kubeAddr() string       { return loopback(c.port(6443)) }
func (c Config) coreHealth() string     { return loopback(c.port(9440)) }
func (c Config) operatorHealth() string { return loopback(c.port(8081)) }
func (c Config) webhookPort() int       { return c.port(9443) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// checkPorts returns an error that names the ports in use, before anything is started: a component
// that can't bind would only be restarted in vain.
func checkPorts(ctx context.Context, cfg Config, components []*component) error {
	addrs := []string{cfg.storeAddr()}
	for _, c := range components[1:] {
		for i := 0; i+1 < len(c.spec.Args); i++ {
			switch c.spec.Args[i] {
			case "--health-addr", "--election-addr", "--registration-addr", "--operator-addr", "--agent-addr", "--metrics-addr",
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
			taken = append(taken, fmt.Errorf("%s is taken by %s", addr, holder(ctx, addr)))
		default:
			taken = append(taken, fmt.Errorf("try %s: %w", addr, err))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return fmt.Errorf("%w\nstop that program first, or give this stack other ports, such as DEV_PORT_OFFSET=1000", errors.Join(taken...))
}

// holder names the program that listens on the port of addr, as far as this user may know.
func holder(ctx context.Context, addr string) string {
	const unknown = "another program"
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return unknown
	}
	all, err := gopsnet.ConnectionsWithContext(ctx, "tcp")
	if err != nil {
		return unknown
	}
	for _, c := range all {
		if c.Status != "LISTEN" || c.Pid == 0 || strconv.FormatUint(uint64(c.Laddr.Port), 10) != port {
			continue
		}
		p, err := process.NewProcessWithContext(ctx, c.Pid)
		if err != nil {
			continue
		}
		name, err := p.NameWithContext(ctx)
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s (pid %d)", name, c.Pid)
	}
	return unknown
}
