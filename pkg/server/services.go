package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/agents"
	"github.com/nstance/nstance/pkg/server/election"
	"github.com/nstance/nstance/pkg/server/leader"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/registration"
	"github.com/nstance/nstance/pkg/server/renewal"
	"github.com/nstance/nstance/pkg/server/writes"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
)

// services are the listeners' servers, once the server has booted.
type services struct {
	registration, operator, agent *grpc.Server
	election                      *http.Server
	agents                        *agents.Service
	judge                         *agents.Judge // of agents
	operators                     *operators.Service
	listeners                     *listeners
	audit                         *audit.Log
}

// newServices creates the services for open listeners; they serve once start is called.
func (s *Server) newServices(l *listeners) (_ *services, err error) {
	v := &services{listeners: l, election: s.electionServer(), audit: s.audit}
	v.agents = agents.New(agents.Config{Shard: ofTerm(s, (*leader.Term).Agents), Renew: s.newRenewal().Renew, Now: s.cfg.Now})
	v.judge = agents.NewJudge(s.ledger, s.cfg.Now)
	v.operators = operators.New(operators.Config{
		Shard: ofTerm(s, (*leader.Term).Operators), Renew: s.newRenewal().Renew, Leadership: s.leadership,
	})

	base := rpc.ServerConfig{
		Cluster: s.trust.ClusterID, Access: rpc.Access(), Now: s.cfg.Now, Logger: s.cfg.Logger, Audit: s.audit, Debug: s.cfg.Debug,
		Outage: func() string { return s.outage.Current().String() },
	}
	if v.registration, err = rpc.NewServer(s.registrationServer(base)); err != nil {
		return nil, err
	}
	if v.operator, err = rpc.NewServer(s.operatorServer(base, v.operators)); err != nil {
		return nil, err
	}
	if v.agent, err = rpc.NewServer(s.agentServer(base, v.agents, v.judge)); err != nil {
		return nil, err
	}
	return v, nil
}

// electionTimeout bounds a peer's handshake, its request, and each line of the response, which
// itself lasts as long as the leader's term (election.Elector.Handler).
const electionTimeout = 10 * time.Second

// electionServer serves the shard's other servers.
func (s *Server) electionServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+election.LeaderPath, s.standbys.follow(s.elector.Handler()))
	mux.Handle("POST "+election.ReadyPath, s.elector.Answers())
	config := s.trust.tls.PeerServer(s.cfg.Shard)
	config.NextProtos = []string{"http/1.1"} // each stream needs its own connection
	return &http.Server{
		Handler: mux, TLSConfig: config,
		ReadHeaderTimeout: electionTimeout, ReadTimeout: electionTimeout, WriteTimeout: electionTimeout, IdleTimeout: electionTimeout,
		MaxHeaderBytes: 8 << 10,
		ErrorLog:       slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

func (s *Server) registrationServer(c rpc.ServerConfig) rpc.ServerConfig {
	c.Name, c.TLS, c.Limits = "registration", s.trust.tls.RegistrationServer(), rpc.RegistrationLimits()
	c.Gate = gate{s, func(a election.Addrs) string { return a.Registration }}
	c.Services = func(r grpc.ServiceRegistrar) {
		nstancev1.RegisterRegistrationServiceServer(r, registration.New(registration.Config{
			Shard:     ofTerm(s, (*leader.Term).Registration),
			ClusterID: s.trust.ClusterID, ShardID: s.cfg.Shard,
			NonceKey: pki.PublicKey(s.trust.NonceKey), CA: s.trust.CA, Bundle: s.trust.bundle,
			TTL: s.cfg.Times.ClientCertificate, Now: s.cfg.Now, Random: s.cfg.Random, Logger: s.cfg.Logger, Tracer: s.cfg.Tracer,
		}))
	}
	return c
}

func (s *Server) operatorServer(c rpc.ServerConfig, o *operators.Service) rpc.ServerConfig {
	c.Name, c.TLS, c.Limits = "operator", s.trust.tls.Server(), rpc.OperatorLimits()
	c.Gate = gate{s, func(a election.Addrs) string { return a.Operator }}
	c.Judge, c.Tracer = operatorJudge(ofTerm(s, (*leader.Term).Roster)), s.cfg.Tracer
	c.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterOperatorServiceServer(r, o) }
	return c
}

func (s *Server) agentServer(c rpc.ServerConfig, a *agents.Service, j *agents.Judge) rpc.ServerConfig {
	c.Name, c.TLS, c.Gate = "agent", s.trust.tls.Server(), gate{s, func(a election.Addrs) string { return a.Agent }}
	c.Judge = j
	c.Services = func(r grpc.ServiceRegistrar) { nstancev1.RegisterAgentServiceServer(r, a) }
	return c
}

func (s *Server) newRenewal() *renewal.Service {
	return renewal.New(renewal.Config{
		CA: s.trust.CA, Bundle: s.trust.bundle, Operator: s.knownOperator, AgentKey: s.renewalKey,
		TTL: s.cfg.Times.ClientCertificate, Now: s.cfg.Now, Random: s.cfg.Random, Logger: s.cfg.Logger,
	})
}

// knownOperator checks an operator against its record. The record is read each time: renewals
// are rare.
func (s *Server) knownOperator(ctx context.Context, caller pki.Caller) error {
	r, err := ofTerm(s, (*leader.Term).Roster)()
	if err != nil {
		return err
	}
	return r.Read(ctx, caller)
}

// renewalKey claims the key of a renewal for the agent's instance.
func (s *Server) renewalKey(ctx context.Context, caller pki.Caller, fingerprint string) error {
	t := s.current.Load()
	if t == nil {
		return writes.ErrNoTerm()
	}
	return t.RenewalKey(ctx, caller, fingerprint)
}

// gate redirects a service's callers to the leader.
type gate struct {
	server *Server
	of     func(election.Addrs) string // the service's address
}

// Leading implements rpc.Gate.
func (g gate) Leading() (leaderAddr string, ok bool) {
	if g.server.current.Load() != nil {
		return "", true
	}
	if record, known := g.server.elector.Leader(); known && record.Holder != g.server.holder { // it leads, but can't serve yet
		return g.of(record.Addrs), false
	}
	return "", false
}

// start serves all listeners. It calls failed for a listener that stops by itself.
func (v *services) start(ctx context.Context, failed func(error)) {
	for _, one := range []struct {
		listener net.Listener
		serve    func(net.Listener) error
	}{
		{v.listeners.election, func(l net.Listener) error {
			return v.election.Serve(rpc.NewTLSListener(ctx, l, v.election.TLSConfig, electionTimeout, "election", v.audit))
		}},
		{v.listeners.registration, v.registration.Serve},
		{v.listeners.operator, v.operator.Serve},
		{v.listeners.agent, v.agent.Serve},
	} {
		go func() {
			err := one.serve(one.listener)
			if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				failed(fmt.Errorf("serve %s: %w", one.listener.Addr(), err))
			}
		}()
	}
}

// stop tells clients to disconnect and lets running calls finish within grace.
func (v *services) stop(ctx context.Context, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var all sync.WaitGroup
	for _, g := range []*grpc.Server{v.registration, v.operator, v.agent} {
		all.Go(func() {
			defer context.AfterFunc(ctx, g.Stop)()
			g.GracefulStop()
		})
	}
	all.Wait()
	_ = v.election.Close()
}
