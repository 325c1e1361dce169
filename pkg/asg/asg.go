// Package asg speaks for a server to the EC2 Auto Scaling group that its machine is of.
//
// A lifecycle hook holds a new machine up until its server is healthy, so that the
// group counts it only then. A machine whose server was healthy and fell silent is
// reported unhealthy, so that the group replaces it; see State.Next for what is not.
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

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/retry"
)

// version is that of the API: https://docs.aws.amazon.com/autoscaling/ec2/APIReference/
const version = "2011-01-01"

// The defaults of a Config.
const (
	DefaultHealthURL = "http://127.0.0.1:8990/health"
	DefaultEvery     = 2 * time.Second
	DefaultLostAfter = 3 * time.Minute
)

// A server that has just been started is asked often, for it may live for less than Every
// and still answer.
const (
	startTime  = 5 * time.Second
	startEvery = 100 * time.Millisecond
)

// answerTime is how long the health endpoint may take before it counts as silent.
const answerTime = 5 * time.Second

// Config says which server is watched, and for which group.
type Config struct {
	Group      string
	Hook       string // the launch hook's name; empty: the group has none
	InstanceID string // of EC2; empty: as the machine says
	HealthURL  string
	Every      time.Duration // from one question to the next
	LostAfter  time.Duration // of silence
	// StateFile keeps what was seen from one start to the next; empty: nothing is kept. It
	// has to go with the machine, and with a server that is stopped on purpose.
	StateFile string

	AWS    awsclient.Config
	HTTP   awsclient.HTTPClient // asks the server; nil: one of its own
	Logger *slog.Logger
}

// Validate reports every problem of cfg at once.
func (cfg Config) Validate() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if cfg.Group == "" {
		wrong("--asg: is empty: want the name of the Auto Scaling group")
	}
	if cfg.InstanceID != "" && !awsclient.IsInstanceID(cfg.InstanceID) {
		wrong("--instance-id: %.80q is not valid: want the id of an EC2 instance, such as i-0123456789abcdef0", cfg.InstanceID)
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
	return errors.Join(append(problems, cfg.checkRegion())...)
}

// checkRegion refuses a region of no partition that is known. Where none is configured the
// machine is asked, later.
func (cfg Config) checkRegion() error {
	region, by := cfg.AWS.ConfiguredRegion()
	if region == "" {
		return nil
	}
	at := awsclient.Session{Hosts: awsclient.Hosts{Region: region}, Getenv: cfg.AWS.Getenv}
	if _, err := at.URL(awsclient.AutoScaling); err != nil {
		if cfg.AWS.Region != "" {
			by = "--region"
		}
		return fmt.Errorf("%s: %w", by, err)
	}
	return nil
}

// watch is one Run.
type watch struct {
	cfg      Config
	call     *awscall.Client
	instance string
	state    State
	seen     Seen
	looked   bool      // at all
	since    time.Time // since when the server has been watched that was not asked yet
	answered bool      // by the server, since the start
	tried    Action    // by the last call
	failures int       // of such calls, in a row
	due      time.Time // when the next such call may be made
	inactive time.Time // when AWS first said that the hook is not active
	kept     string    // what the state file was last given
	unkept   bool      // it could not be written the last time
}

// Run watches the server until ctx ends, which is no error.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	w := &watch{cfg: cfg, instance: cfg.InstanceID, state: State{Completed: cfg.Hook == ""}}
	if w.cfg.HTTP == nil {
		w.cfg.HTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // the server closes after each
	}
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
	w.recall(ctx) // no earlier: time in which nobody was asked is no silence
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
	// Each of many short lives adds to the silence.
	if w.looked && w.seen == Silent {
		w.keep(ctx, w.state.Silence+w.watched(time.Now()))
	}
	return nil
}

// passed waits, and reports whether ctx lasted that long.
func passed(ctx context.Context, d time.Duration) bool { return retry.Wait(ctx, d) == nil }

// open finds out who this machine is, and how AWS is called.
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
	w.call, err = awscall.New(session, awsclient.AutoScaling)
	return err
}

// step asks the server once, and acts if it is time to.
func (w *watch) step(ctx context.Context) {
	seen, answer := w.look(ctx)
	if ctx.Err() != nil {
		return // what was cut off is no silence
	}
	if seen != w.seen {
		w.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "health changed", slog.Bool("healthy", seen == Healthy), slog.String("answer", answer))
		w.seen = seen
	}
	w.looked, w.answered = true, w.answered || seen != Silent
	now := time.Now()
	next, action := w.state.Next(w.watched(now), seen, w.cfg.LostAfter)
	w.state, w.since = next, now
	w.keep(ctx, w.state.Silence.Truncate(time.Second)) // no more than one write a second
	if action == Wait || action == w.tried && now.Before(w.due) {
		return
	}
	if action != w.tried {
		w.tried, w.failures = action, 0
	}
	err := w.act(ctx, action)
	w.since = time.Now() // the server was not watched meanwhile
	if err == nil {
		w.failures = 0
		return
	}
	w.failures++
	w.due = w.since.Add(callBackoff().Delay(w.failures))
	if !errors.Is(err, errInactive) {
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "call of Auto Scaling failed", slog.Any("error", err), slog.Time("next", w.due))
	}
}

// watched is for how long the server has been watched since the last question: no longer
// than one takes, with the wait before it. What is more was a standstill of this process.
func (w *watch) watched(now time.Time) time.Duration {
	return min(now.Sub(w.since), w.cfg.Every+answerTime)
}

// callBackoff is how long to wait after calls that failed.
func callBackoff() retry.Backoff { return retry.Backoff{First: time.Second, Limit: time.Minute} }

// look asks the server how it is.
func (w *watch) look(ctx context.Context) (Seen, string) {
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

// act tells the group, and notes that it was told.
func (w *watch) act(ctx context.Context, action Action) error {
	if action == Complete {
		err := w.complete(ctx)
		w.state.Completed = err == nil
		return err
	}
	err := w.send(ctx, "SetInstanceHealth", url.Values{
		"InstanceId": {w.instance}, "HealthStatus": {"Unhealthy"}, "ShouldRespectGracePeriod": {"false"},
	})
	if err == nil {
		w.state.Replaced = true
		w.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the server is lost: the group will replace this machine",
			slog.String("instance", w.instance), slog.Duration("silent", w.state.Silence.Round(time.Second)))
	}
	return err
}

// send makes a call once: what it asks for may be asked for again.
func (w *watch) send(ctx context.Context, action string, params url.Values) error {
	ctx, cancel := context.WithTimeout(ctx, 4*answerTime)
	defer cancel()
	return w.call.Query(ctx, version, action, params, nil, awscall.Attempts{Once: true})
}
