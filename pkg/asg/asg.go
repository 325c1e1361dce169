// Package asg reports the health of a server to the EC2 Auto Scaling group of its machine.
//
// A lifecycle hook keeps a new machine out of service until its server is healthy. A machine
// whose server was healthy and stopped answering is reported unhealthy, so that the group
// replaces it; see State.Next for the exceptions.
package asg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/retry"
)

// Defaults of Config.
const (
	DefaultHealthURL = "http://127.0.0.1:8990/health"
	DefaultEvery     = 2 * time.Second
	DefaultLostAfter = 3 * time.Minute
)

// A freshly started server is checked often, as it may answer and still live for less than
// Every.
const (
	startTime  = 5 * time.Second
	startEvery = 100 * time.Millisecond
)

// answerTime is the timeout of a health check; a timeout counts as silence.
const answerTime = 5 * time.Second

// Config configures Run.
type Config struct {
	Group      string
	Hook       string // name of the launch hook; empty: none
	InstanceID string // EC2 instance ID; empty: from the metadata service
	HealthURL  string
	Every      time.Duration // interval between health checks
	LostAfter  time.Duration // silence after which the machine is replaced
	// StateFile keeps the state across restarts; empty: none is kept. It must not outlive the
	// machine, and must be removed with a server that is stopped on purpose.
	StateFile   string
	MetricsAddr string // empty: no metrics
	Version     string

	AWS    awsclient.Config
	HTTP   awsclient.HTTPClient // client of the health checks; nil: a default client
	Logger *slog.Logger
}

// Validate returns all problems of cfg.
func (cfg Config) Validate() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if cfg.Group == "" {
		wrong("--asg is required: pass the name of the Auto Scaling group")
	}
	if cfg.InstanceID != "" && !awsclient.IsInstanceID(cfg.InstanceID) {
		wrong("--instance-id: %.80q is not valid: want an EC2 instance ID, such as i-0123456789abcdef0", cfg.InstanceID)
	}
	if u, err := url.Parse(cfg.HealthURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		wrong("--health-url: %.200q is not valid: want a URL such as %s", cfg.HealthURL, DefaultHealthURL)
	}
	if cfg.Every < 100*time.Millisecond || cfg.Every > time.Minute {
		wrong("--every: %s is not valid: want between 100ms and 1m", cfg.Every)
	}
	if cfg.LostAfter < 10*time.Second || cfg.LostAfter > time.Hour || cfg.LostAfter < 3*cfg.Every {
		wrong("--lost-after: %s is not valid: want between 10s and 1h, and at least three times --every", cfg.LostAfter)
	}
	return errors.Join(append(problems, checkMetricsAddr(cfg.MetricsAddr), cfg.checkRegion())...)
}

// checkRegion refuses a configured region of no known partition. Without one, the region comes
// from the machine later.
func (cfg Config) checkRegion() error {
	region, by := cfg.AWS.ConfiguredRegion()
	if region == "" {
		return nil
	}
	at := awsclient.Session{Hosts: awsclient.Hosts{Region: region}, Getenv: cfg.AWS.Getenv}
	if _, err := at.URL(awsclient.AutoScaling); errors.Is(err, awsclient.ErrPlain) {
		return err
	} else if err != nil {
		if cfg.AWS.Region != "" {
			by = "--region"
		}
		return fmt.Errorf("%s: %w", by, err)
	}
	return nil
}

// api holds the Auto Scaling calls as functions (pkg/awsclient/sdk.go).
type api struct {
	completeHook call[autoscaling.CompleteLifecycleActionInput, autoscaling.CompleteLifecycleActionOutput]
	setHealth    call[autoscaling.SetInstanceHealthInput, autoscaling.SetInstanceHealthOutput]
}

type call[In, Out any] func(context.Context, *In, ...func(*autoscaling.Options)) (*Out, error)

// watch is the state of Run.
type watch struct {
	cfg      Config
	api      api
	instance string
	state    State
	seen     Seen
	looked   bool      // at least one check was made
	since    time.Time // start of the watched time not yet accounted for
	answered bool      // the server has answered since the start
	tried    Action    // action of the last call
	failures int       // consecutive failures of that action
	due      time.Time // earliest time of the next attempt
	inactive time.Time // when AWS first said that the hook is not active
	kept     string    // content last written to the state file
	unkept   bool      // the last write of the state file failed
	shown    shown
}

// Run watches the server until ctx ends, which is not an error.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	w := &watch{cfg: cfg, instance: cfg.InstanceID, state: State{Completed: cfg.Hook == ""}}
	if w.cfg.HTTP == nil {
		w.cfg.HTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // the server closes each connection
	}
	stop, err := serveMetrics(ctx, w.cfg, &w.shown)
	if err != nil {
		return err
	}
	defer stop()
	for n := 1; ; n++ {
		err := w.open(ctx)
		if err == nil {
			break
		}
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "not watching yet", slog.Any("error", err))
		if !passed(ctx, callBackoff().Delay(n)) {
			return nil
		}
	}
	w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "watching", slog.String("instance", w.instance), slog.String("group", cfg.Group),
		slog.String("hook", cfg.Hook), slog.String("health", cfg.HealthURL))
	w.recall(ctx) // not earlier: time without checks is not silence
	w.since = time.Now()
	for began := w.since; ; {
		w.step(ctx)
		every := cfg.Every
		if !w.answered && time.Since(began) < startTime {
			every = min(every, startEvery)
		}
		if !passed(ctx, every) {
			break
		}
	}
	// Repeated short runs accumulate silence.
	if w.looked && w.seen == Silent {
		w.writeState(ctx, w.state.Silence+w.watched(time.Now()))
	}
	return nil
}

// passed waits for d, and reports whether ctx lasted that long.
func passed(ctx context.Context, d time.Duration) bool { return retry.Wait(ctx, d) == nil }

// open resolves this machine's instance ID and creates the AWS client.
func (w *watch) open(ctx context.Context) error {
	session, err := w.cfg.AWS.Open(ctx)
	if err != nil {
		return err
	}
	if w.instance == "" {
		if w.instance, err = awsclient.InstanceID(ctx, nil); err != nil {
			return err
		}
	}
	cfg, err := session.Brief(awsclient.AutoScaling)
	client := autoscaling.NewFromConfig(cfg)
	w.api = api{client.CompleteLifecycleAction, client.SetInstanceHealth}
	return err
}

// step makes one health check and acts on it if due.
func (w *watch) step(ctx context.Context) {
	seen, answer := w.probe(ctx)
	if ctx.Err() != nil {
		return // a cancelled check is not silence
	}
	if seen != w.seen {
		w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "health changed", slog.Bool("healthy", seen == Healthy), slog.String("answer", answer))
		w.seen = seen
	}
	w.looked, w.answered = true, w.answered || seen != Silent
	now := time.Now()
	next, action := w.state.Next(w.watched(now), seen, w.cfg.LostAfter)
	w.state, w.since = next, now
	w.shown.checked(seen, next)
	w.writeState(ctx, w.state.Silence.Truncate(time.Second)) // at most one write per second
	if action == Wait || action == w.tried && now.Before(w.due) {
		return
	}
	if action != w.tried {
		w.tried, w.failures = action, 0
	}
	err := w.act(ctx, action)
	w.shown.acted(w.state, err)
	w.since = time.Now() // the server was not watched during the call
	if err == nil {
		w.failures = 0
		return
	}
	w.failures++
	w.due = w.since.Add(callBackoff().Delay(w.failures))
	if !errors.Is(err, errInactive) {
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "Auto Scaling call failed", slog.Any("error", err), slog.Time("next", w.due))
	}
}

// watched returns for how long the server has been watched since the last check: at most the
// wait plus one timeout. Any more is a pause of this process.
func (w *watch) watched(now time.Time) time.Duration {
	return min(now.Sub(w.since), w.cfg.Every+answerTime)
}

// callBackoff is the back-off of failed calls.
func callBackoff() retry.Backoff { return retry.Backoff{First: time.Second, Limit: time.Minute} }

// probe makes one health check.
func (w *watch) probe(ctx context.Context) (Seen, string) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.cfg.HealthURL, nil)
	if err != nil {
		return Silent, err.Error()
	}
	reply, err := w.cfg.HTTP.Do(r)
	if err != nil {
		return Silent, err.Error()
	}
	defer reply.Body.Close()
	const line = 200 // bytes
	text, err := io.ReadAll(io.LimitReader(reply.Body, line))
	switch answer := fmt.Sprintf("%d %s", reply.StatusCode, strings.TrimSpace(string(text))); {
	case err != nil:
		return Silent, err.Error()
	case reply.StatusCode == http.StatusOK:
		return Healthy, answer
	default:
		return Ill, answer
	}
}

// act performs an action and records it.
func (w *watch) act(ctx context.Context, action Action) error {
	if action == Complete {
		err := w.complete(ctx)
		w.state.Completed = err == nil
		return err
	}
	err := send(ctx, w.api.setHealth, &autoscaling.SetInstanceHealthInput{
		InstanceId: &w.instance, HealthStatus: sdk.String("Unhealthy"), ShouldRespectGracePeriod: sdk.Bool(false),
	})
	if err == nil {
		w.state.Replaced = true
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "server lost: the group will replace this machine",
			slog.String("instance", w.instance), slog.Duration("silent", w.state.Silence.Round(time.Second)))
	}
	return err
}

// send makes a call once. All calls here are idempotent.
func send[In, Out any](ctx context.Context, call call[In, Out], in *In) error {
	ctx, cancel := context.WithTimeout(ctx, 4*answerTime)
	defer cancel()
	_, err := call(ctx, in, func(o *autoscaling.Options) { awsclient.Once(&o.Retryer, &o.APIOptions, nil) })
	return awsclient.InWords(err)
}
