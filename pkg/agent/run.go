package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type agent struct {
	*membership // set once its directory was read
	config      Config
	run         string // of this process (rpc.WithRun)
	tracker     *tracker
	trigger     trigger
	// registeredAt is when this process registered; zero: an earlier one did.
	registeredAt time.Time
	// nextReplaced: the key of a renewal was refused as another instance's, and was replaced.
	// Used only by the renewing goroutine.
	nextReplaced bool
	// noticed is the provider's termination notice; nil: none. Never modified in place.
	noticed atomic.Pointer[nstancev1.TerminationNotice]
}

// Run runs an agent until ctx ends; then it reports the shutdown to the server and returns
// nil. It returns an error for problems that another start may find solved; the caller should
// wait a little before a restart. A refused nonce is not an error: Run logs it and waits for
// ctx to end, or for another nonce.
func Run(ctx context.Context, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	run, err := newRun(c.Entropy)
	if err != nil {
		return err
	}
	a := &agent{config: c, run: run, tracker: newTracker(c), trigger: newTrigger()}
	defer a.tracker.stopped()
	stop, err := serveHealth(ctx, c.HealthAddr, a.tracker)
	if err != nil {
		return err
	}
	defer stop()
	stopMetrics, err := serveMetrics(ctx, c.MetricsAddr, a.tracker, c.Version)
	if err != nil {
		return err
	}
	defer stopMetrics()
	var beside sync.WaitGroup
	defer beside.Wait()
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	beside.Go(func() { a.watchForNotice(watching) })
	for {
		err = a.live(ctx)
		var final *finalError
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.As(err, &final):
			return err
		}
		a.tracker.failed(StateRejected, err)
		c.Logger.LogAttrs(ctx, slog.LevelError, "this instance can't join its cluster, waiting for another nonce",
			slog.Any("error", err))
		if !a.awaitNonce(ctx) {
			return nil
		}
		c.Logger.LogAttrs(ctx, slog.LevelInfo, "found another nonce, trying again")
	}
}

// nonceLook is how often a rejected agent checks for another nonce.
const nonceLook = 10 * time.Second

// awaitNonce waits for another nonce for this instance, and returns false if ctx ends first.
// An incomplete nonce is not yet used.
func (a *agent) awaitNonce(ctx context.Context) bool {
	folder := identity.Files{Dir: a.config.IdentityDir}
	refused, _ := folder.Read(nonceFile) // if unreadable now, it may be readable later
	for retry.Wait(ctx, nonceLook) == nil {
		text, err := folder.Read(nonceFile)
		if err != nil || bytes.Equal(text, refused) {
			continue
		}
		if c, err := readNonce(string(bytes.TrimSpace(text))); err == nil && (c.instance == "" || c.instance == string(a.config.InstanceID)) {
			return true
		}
	}
	return false
}

// newRun returns a random run ID.
func newRun(entropy io.Reader) (string, error) {
	var id [16]byte
	if _, err := io.ReadFull(entropy, id[:]); err != nil {
		return "", fmt.Errorf("draw an id for this run: %w", err)
	}
	return hex.EncodeToString(id[:]), nil
}

// live registers if needed, and holds the streams.
func (a *agent) live(ctx context.Context) (err error) {
	a.membership, err = openMembership(ctx, a.config)
	if err != nil {
		return err
	}
	a.tracker.belongs(a.home)
	if err := a.join(ctx); err != nil {
		return err
	}
	cert := a.Certificate()
	a.tracker.registered(cert)
	a.config.Logger.LogAttrs(ctx, slog.LevelInfo, "registered", slog.String("instance_id", string(a.config.InstanceID)),
		slog.String("server", a.home.String()), slog.Time("certificate_expires", cert.NotAfter))
	return a.hold(ctx)
}

func (a *agent) join(ctx context.Context) error {
	if a.registered {
		if a.nonce == "" {
			return nil
		}
		return a.spend() // a previous process stopped between the two
	}
	client, err := a.client(a.config.RegistrationAddrs)
	if err != nil {
		return err
	}
	defer client.Close()
	a.tracker.enter(StateRegistering)
	err = a.registerFirst(ctx, client)
	var final *finalError
	if !errors.As(err, &final) || a.Problem() != nil || a.Verify(time.Time{}) != nil {
		return err
	}
	// There is a certificate, refused only for its dates by the local clock: it was not used
	// because the nonce seemed valid.
	a.config.Logger.LogAttrs(ctx, slog.LevelWarn, "the nonce was refused, trying the existing certificate",
		slog.Any("error", err), slog.Time("certificate_expires", a.Certificate().NotAfter))
	return a.spend()
}

func (a *agent) hold(ctx context.Context) error {
	client, err := a.client(a.config.AgentAddrs)
	if err != nil {
		return err
	}
	defer client.Close()
	a.tracker.enter(StateConnecting)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { a.runRenewal(ctx, client) })
	Hold(ctx, HoldConfig{
		Client:         client,
		ReportInterval: a.config.ReportInterval,
		Run:            a.run,
		Fill:           a.fill,
		Files:          a.received(ctx),
		Keys:           a.keys(ctx),
		Expired:        a.expired,
		ReportNow:      a.trigger,
		Random:         a.config.Random,
		Now:            a.config.Now,
		Logger:         a.config.Logger,
		Tracer:         a.config.Tracer,
		Observe:        a.observe(ctx),
	})
	return nil
}

func (a *agent) fill(ctx context.Context, report *nstancev1.ReportHealthRequest) {
	report.Version = a.config.Version
	report.Resources = a.config.Sample(ctx)
	report.Termination = a.noticed.Load()
	report.WriteError = a.tracker.writeError()
}

func (a *agent) client(addrs []string) (*rpc.Client, error) {
	client, err := rpc.NewClient(rpc.ClientConfig{
		Addrs:     addrs,
		TLS:       func(host string) *tls.Config { return a.TLS(a.home.shard, host) },
		UserAgent: "nstance-agent/" + a.config.Version,
		Random:    a.config.Random,
		Dialer:    a.config.Dialer,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", addrs, err)
	}
	return client, nil
}
