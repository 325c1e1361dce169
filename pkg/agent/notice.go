package agent

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/agent/spot"
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// watchForNotice watches for the provider's termination notice until ctx ends. A notice is
// added to every report, and the first such report is sent at once.
func (a *agent) watchForNotice(ctx context.Context) {
	spot.Watch(ctx, spot.Config{
		Provider: a.config.Provider, Interval: a.config.SpotPollInterval,
		AWSEndpoint: a.config.AWSMetadata, GCPHost: a.config.GCPMetadata,
		Dialer: a.config.Dialer, Now: a.config.Now, Logger: a.config.Logger,
		Noticed: func(n fleet.Notice) {
			said := &nstancev1.TerminationNotice{Source: n.Source, Action: n.Action}
			if !n.At.IsZero() {
				said.At = timestamppb.New(n.At)
			}
			a.noticed.Store(said)
			a.trigger.now()
		},
	})
	a.config.Logger.LogAttrs(ctx, slog.LevelDebug, "stopped watching for a termination notice")
}
