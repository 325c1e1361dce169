package agent_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func (s *server) RegisterAgent(_ context.Context, r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
	s.mu.Lock()
	s.registrations = append(s.registrations, r)
	register := s.register
	s.mu.Unlock()
	return register(r)
}

// grant returns the response of a well-behaved server.
func (s *server) grant(r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
	granted, err := s.grantTo(s.w.ca, instanceID, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.chain != "" {
		granted.Identity.CaChain, granted.Identity.CaChainSignature = s.chain, s.w.ca.SignBundle([]byte(s.chain))
	}
	return granted, err
}

func (s *server) grantTo(ca *pki.CA, id string, r *nstancev1.RegisterAgentRequest) (*nstancev1.RegisterAgentResponse, error) {
	public, err := pki.ParsePublicKey([]byte(r.GetPublicKey()))
	if err != nil {
		return nil, rpc.Invalid.Errorf("public_key: %w", err)
	}
	return s.grantKey(ca, id, public)
}

func (s *server) grantKey(ca *pki.CA, id string, public ed25519.PublicKey) (*nstancev1.RegisterAgentResponse, error) {
	cert, err := ca.IssueAgent(pki.ClientRequest{Tenant: "default", ID: id, PublicKey: public, Now: time.Now(), TTL: 24 * time.Hour},
		rand.Reader)
	if err != nil {
		return nil, err
	}
	bundle := pki.NewBundle(ca.Certificate()).PEM()
	return &nstancev1.RegisterAgentResponse{Identity: &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(cert)), CaChain: string(bundle), CaChainSignature: ca.SignBundle(bundle),
	}}, nil
}

func (s *server) ReportHealth(stream nstancev1.AgentService_ReportHealthServer) error {
	run, err := rpc.RunFrom(stream.Context())
	s.set(func() { s.streams, s.runs = s.streams+1, append(s.runs, run) })
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return s.answerEnd(stream)
		}
		if err != nil {
			return err
		}
		s.set(func() { s.reports = append(s.reports, report{r, time.Now()}) })
	}
}

func (s *server) answerEnd(stream nstancev1.AgentService_ReportHealthServer) error {
	s.mu.Lock()
	deaf := s.deaf
	s.mu.Unlock()
	if deaf {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return stream.SendAndClose(&nstancev1.ReportHealthResponse{})
}

func (s *server) KeyGenRequests(_ *nstancev1.KeyGenRequestsRequest, stream nstancev1.AgentService_KeyGenRequestsServer) error {
	s.mu.Lock()
	ask := s.askKeys
	s.mu.Unlock()
	if ask != nil {
		return ask(stream)
	}
	return s.side(stream.Context())
}

func (s *server) ReceiveFiles(_ *nstancev1.ReceiveFilesRequest, stream nstancev1.AgentService_ReceiveFilesServer) error {
	s.mu.Lock()
	push := s.pushFiles
	s.mu.Unlock()
	if push != nil {
		return push(stream)
	}
	return s.side(stream.Context())
}

func (s *server) SubmitPublicKeys(_ context.Context, r *nstancev1.SubmitPublicKeysRequest) (*nstancev1.SubmitPublicKeysResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.submitted = append(s.submitted, r.GetPublicKeys())
	if s.submit == nil {
		return &nstancev1.SubmitPublicKeysResponse{}, nil
	}
	return &nstancev1.SubmitPublicKeysResponse{}, s.submit(r.GetPublicKeys())
}

func (s *server) side(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.mu.Lock()
	s.sideCalls++
	s.sideEnds = append(s.sideEnds, end)
	sides := s.sides
	s.mu.Unlock()
	if !sides {
		return rpc.Unimplemented.Errorf("not in this version")
	}
	s.set(func() { s.sideOpen++ })
	<-ctx.Done()
	s.set(func() { s.sideOpen-- })
	return ctx.Err()
}

// seen returns the server's counters.
type seen struct {
	registrations       []*nstancev1.RegisterAgentRequest
	reports             []report
	streams             int
	sideCalls, sideOpen int
	runs                []string
}

func (s *server) seen() seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seen{
		append([]*nstancev1.RegisterAgentRequest(nil), s.registrations...), append([]report(nil), s.reports...),
		s.streams, s.sideCalls, s.sideOpen, append([]string(nil), s.runs...),
	}
}

// settle waits for d, and for everything that follows.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// breakSides ends the other streams only.
func (s *server) breakSides() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range s.sideEnds {
		end()
	}
	s.sideEnds = nil
}
