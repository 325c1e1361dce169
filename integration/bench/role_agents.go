package main

import (
	"context"
	"crypto/x509"
	"io"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"golang.org/x/sync/errgroup"
)

type agentSettings struct {
	Kit      string        `json:"kit"`
	Interval time.Duration `json:"interval"` // of reports
	Files    bool          `json:"files"`    // receive the server's files
}

// playAgents connects an agent for every instance of the kit and keeps them connected until the
// role ends.
func playAgents(ctx context.Context, s *stage) error {
	var settings agentSettings
	if err := s.read(&settings); err != nil {
		return err
	}
	k, err := readKit(settings.Kit)
	if err != nil {
		return err
	}
	ca, err := k.ca()
	if err != nil {
		return err
	}
	var reported atomic.Int64
	began := time.Now()
	observe := func(e agent.Event) {
		if e.Kind == agent.Reported && e.Sequence == 1 && reported.Add(1) == int64(len(k.Instances)) {
			s.tell(event{Kind: "connected", Value: time.Since(began).Seconds()})
		}
	}
	work, ctx := errgroup.WithContext(ctx)
	for _, id := range k.Instances {
		work.Go(func() error { return connect(ctx, ca.IssueAgent, ca, id, k, settings, observe) })
	}
	return work.Wait()
}

func connect(ctx context.Context, sign func(pki.ClientRequest, io.Reader) (*x509.Certificate, error), ca *pki.CA, id fleet.InstanceID,
	k kit, settings agentSettings, observe func(agent.Event)) error {
	pair, err := issue(sign, id)
	if err != nil {
		return err
	}
	s := simulated{
		id: id, addrs: []string{k.Addrs.Agent}, interval: settings.Interval, observe: observe,
		endpoint: pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(pki.NewBundle(ca.Certificate()), pair), Now: time.Now},
	}
	if settings.Files {
		s.files = &heldFiles{}
	}
	return s.hold(ctx)
}
