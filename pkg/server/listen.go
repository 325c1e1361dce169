package server

import (
	"context"
	"fmt"
	"net"

	"github.com/nstance/nstance/pkg/rpc"
)

// listeners are the open addresses of the four services.
type listeners struct{ election, registration, operator, agent net.Listener }

// listen opens the addresses of the four services, or none. The error names the flag or the
// config field of the address.
func (s *Server) listen(ctx context.Context) (*listeners, error) {
	out := &listeners{}
	flags := s.cfg.Bind
	for _, l := range []struct {
		name, flag, addr string
		to               *net.Listener
		conns            rpc.Conns
	}{
		{"election", flags.Election, s.addresses.bind.Election, &out.election, rpc.PeerConns()},
		{"registration", flags.Registration, s.addresses.bind.Registration, &out.registration, rpc.RegistrationConns()},
		{"operator", flags.Operator, s.addresses.bind.Operator, &out.operator, rpc.Conns{}},
		{"agent", flags.Agent, s.addresses.bind.Agent, &out.agent, rpc.Conns{}},
	} {
		field := "server.bind." + l.name + "_addr"
		if l.flag != "" {
			field = "--" + l.name + "-addr"
		}
		l.conns.Handshakes = s.handshakes
		opened, err := s.cfg.open(ctx, field, l.addr, l.conns)
		if err != nil {
			out.close()
			return nil, err
		}
		*l.to = opened
	}
	return out, nil
}

// open opens one address. The error begins with field, the address's flag or config field.
func (c Config) open(ctx context.Context, field, addr string, limits rpc.Conns) (net.Listener, error) {
	if c.Listen == nil {
		return rpc.Listen(ctx, field, addr, limits)
	}
	l, err := c.Listen(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return rpc.Limit(l, limits), nil
}

// endpoints returns the bound addresses, with the actual ports.
func (l *listeners) endpoints(health string) Endpoints {
	return Endpoints{
		Health: health, Election: l.election.Addr().String(), Registration: l.registration.Addr().String(),
		Operator: l.operator.Addr().String(), Agent: l.agent.Addr().String(),
	}
}

// close closes the listeners. Idempotent.
func (l *listeners) close() {
	for _, one := range []net.Listener{l.election, l.registration, l.operator, l.agent} {
		if one != nil {
			one.Close()
		}
	}
}
