package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/identities"
)

func (s *Server) openElector() (err error) {
	a := s.addresses.advertised
	s.elector, err = election.New(election.Config{
		Store: s.bare, Key: "leader/" + s.cfg.Shard + ".json", Holder: s.holder,
		Addrs:   election.Addrs{Election: a.Election, Registration: a.Registration, Operator: a.Operator, Agent: a.Agent},
		Servers: func() []string { return s.servers().Hosts() },
		Timing:  timing(s.boot),
		FirstEpoch: func(ctx context.Context) (uint64, error) {
			_, err := s.ledger.Load(ctx)
			return s.ledger.HighestEpoch() + 1, err
		},
		Probe: s.couldLead, Prepare: s.readAhead, Needs: s.needs,
		Peers:  peers{s.trust.tls, s.cfg.Shard, s.cfg.Dial},
		Jitter: s.cfg.jitter,
		Logger: s.cfg.Logger,
	})
	return err
}

// servers returns the names and addresses of the shard's servers that this one knows, including the
// leader's moving ones.
func (s *Server) servers() identities.Servers {
	return s.standbys.beside(identities.Servers{DNS: s.addresses.dns, IPs: s.addresses.ips})
}

// readAhead reads the records that changed since this server read them last. The term lists again
// what it decides on, but then finds most of it read.
func (s *Server) readAhead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.boot.Server.LeaderElection.LeaseDuration))
	defer cancel()
	if _, err := s.ledger.Load(ctx); err != nil {
		s.cfg.Logger.Debug("can't read the records ahead of the term", slog.Any("error", err))
	}
}

// peers dials other servers of the shard. Each address gets its own TLS configuration, because
// the peer's certificate must name the dialed address.
type peers struct {
	tls   pki.Endpoint
	shard string
	dial  func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP
}

// Dial implements election.Dialer.
func (p peers) Dial(ctx context.Context, addr string) (election.Stream, error) {
	d, err := p.dialer(addr)
	if err != nil {
		return nil, fmt.Errorf("dial peer %s: %w", addr, err)
	}
	return d.Dial(ctx, addr)
}

// Answer implements election.Dialer.
func (p peers) Answer(ctx context.Context, addr string, a election.Answer) error {
	d, err := p.dialer(addr)
	if err != nil {
		return fmt.Errorf("answer %s: %w", addr, err)
	}
	return d.Answer(ctx, addr, a)
}

func (p peers) dialer(addr string) (election.Dialer, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	config := p.tls.Client(host, p.shard)
	if p.dial != nil {
		return election.NewHTTPDialerOver(p.dial, config), nil
	}
	return election.NewHTTPDialer(config), nil
}

// uniform draws from [0, 1); 0 if no randomness is available.
func (c Config) uniform() float64 {
	var b [8]byte
	if _, err := io.ReadFull(c.Random, b[:]); err != nil {
		return 0
	}
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

// jitter draws from [0, most), so that servers that fail together do not retry together.
func (c Config) jitter(most time.Duration) time.Duration {
	return time.Duration(c.uniform() * float64(max(0, most)))
}
