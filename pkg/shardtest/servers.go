package shardtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	nstanceserver "github.com/nstance/nstance/pkg/server"
)

// server is a host for a server, and the life that runs on it, if any.
type server struct {
	shard   *Shard
	name    string
	addr    string
	starts  int
	cutOff  bool // it can't reach the store
	ails    ails
	asked   bool  // to stop
	forgets bool  // its cache is removed before the next start
	life    *life // of the last start; nil: never started
	stop    context.CancelFunc
	done    chan struct{} // closed when the last start has ended
}

// running reports whether a process runs there.
func (v *server) running() bool {
	if v.done == nil {
		return false
	}
	select {
	case <-v.done:
		return false
	default:
		return true
	}
}

// wait returns when no process runs there.
func (v *server) wait() {
	if v.done != nil {
		<-v.done
	}
}

// lifeName names one start of a server, in elections, calls and timelines.
func (v *server) lifeName() string { return fmt.Sprintf("%s-%d", v.name, v.starts) }

// start starts the server, once the previous process has ended.
func (v *server) start() {
	v.wait()
	v.starts++
	v.asked = false
	if v.forgets {
		v.forgets = false
		os.RemoveAll(v.cacheDir())
	}
	name, host := v.lifeName(), v.shard.network.Host(v.addr)
	host.Up()
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{ails: &v.ails, end: func(why string) {
		v.shard.Timeline.Say(name, "dies %s", why)
		cancel()
		host.Down(true)
	}}
	done := make(chan struct{})
	v.life, v.stop, v.done = l, cancel, done
	if v.cutOff {
		l.block()
	}
	v.shard.Timeline.Say(name, "starts")
	c := v.config(name, l, host)
	go func() {
		defer close(done)
		err := nstanceserver.Run(ctx, c)
		cancel()
		if err != nil && ctx.Err() == nil || err != nil && !dead(l) {
			v.shard.Timeline.Say(name, "ends by itself: %v", err)
		}
		host.Down(true)
	}()
}

// cacheDir returns the folder of the server's cache; empty if it has none.
func (v *server) cacheDir() string {
	if !v.shard.opts.Cache {
		return ""
	}
	return filepath.Join(v.shard.opts.Dir, "cache-"+v.name)
}

func dead(l *life) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (v *server) config(name string, l *life, host *Host) nstanceserver.Config {
	s := v.shard
	var registration, agent []string
	for n := range s.opts.Servers {
		registration = append(registration, fmt.Sprintf("192.168.0.%d:8992", n+1))
		agent = append(agent, fmt.Sprintf("192.168.0.%d:8994", n+1))
	}
	return nstanceserver.Config{
		Shard: shardID, ID: name, AdvertiseHost: v.addr, Version: "sim",
		InstanceRegistrationAddrs: registration, InstanceAgentAddrs: agent,
		Store: mortalStore{s.store, l}, CacheDir: v.cacheDir(),
		OpenProvider: func(o nstanceserver.Opening) (provider.Provider, error) {
			return mortalProvider{s.world.Open(o.Scope, name), l, s.book, s.world, name, s.plagues}, nil
		},
		Listen: host.Listen, Dial: host.Dial,
		Getenv: getenv, Now: time.Now, Random: s.random(name),
		Logger: slog.New(&logs{shard: s, actor: name}),
	}
}

// terminate acts like SIGTERM, and returns when the process has ended. A suspended process
// handles it when it resumes.
func (v *server) terminate() {
	v.shard.Timeline.Say(v.lifeName(), "is told to stop")
	v.asked = true
	v.life.disarm() // it would be suspended for ever
	v.stop()
	if !v.life.suspended() {
		v.wait()
		v.shard.Timeline.Say(v.lifeName(), "has stopped")
	}
}

// suspend stops the process for a while.
func (v *server) suspend() {
	v.shard.network.Host(v.addr).Suspend()
	v.life.suspend()
}

func (v *server) resume() {
	v.life.unsuspend()
	v.shard.network.Host(v.addr).Resume()
}

// logs is a slog.Handler that adds the important lines, or all lines, to the timeline.
type logs struct {
	shard *Shard
	actor string
	attrs []slog.Attr
}

var _ slog.Handler = (*logs)(nil)

// Enabled implements slog.Handler.
func (h *logs) Enabled(_ context.Context, level slog.Level) bool {
	return h.shard.opts.Logs || level >= slog.LevelInfo
}

// Handle implements slog.Handler.
func (h *logs) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "ready to act" {
		h.shard.book.hands.isReady(h.actor)
	}
	if told := story(r); told != "" && !h.shard.opts.Logs {
		h.shard.Timeline.Say(h.actor, "%s", told)
	}
	h.judge(r)
	if h.shard.opts.Logs {
		var b strings.Builder
		for _, a := range h.attrs {
			fmt.Fprintf(&b, " %s", a)
		}
		r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s", a); return true })
		h.shard.Timeline.Say(h.actor, "log: %s %s%s", r.Level, r.Message, b.String())
	}
	return nil
}

// The reasons of the problems of a group whose record is missing, and of a config that takes
// groups away.
const (
	recordMissing = "GroupRecordMissing"
	configAwaits  = "ConfigAwaitsConfirmation"
)

// judge checks that a dynamic group's record is reported as missing only if it is, if it says so
// itself, if it was changed manually, or if a late listing still returns it as it was then. A static group with more instances
// than its config says, except for a rotation, is held as if its override was lost, as documented. A leader that was suspended
// tells what it saw before it learns that another one leads.
func (h *logs) judge(r slog.Record) {
	said := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { said[a.Key] = a.Value.String(); return true })
	if said["reason"] == configAwaits {
		h.shard.book.texts.tell(h.actor)
	}
	tenant, name, _ := strings.Cut(said["group"], "/")
	if own := name == "batch" || name == "cron"; said["reason"] != recordMissing || !own {
		return
	}
	b := h.shard.book
	b.mu.Lock()
	defer b.mu.Unlock()
	key := fleet.GroupKey{Tenant: tenant, Name: name}
	if deposed := b.epochs[h.actor] < b.holder.Epoch; deposed {
		return
	}
	if r := b.groups[key]; r.Exists() && !r.Removed && !r.Missing && !b.hands.mayMiss(key) {
		b.violate("%s reports that the record of group %s is missing, but it is not", h.actor, said["group"])
	}
}

// WithAttrs implements slog.Handler.
func (h *logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logs{shard: h.shard, actor: h.actor, attrs: append(append([]slog.Attr(nil), h.attrs...), attrs...)}
}

// WithGroup implements slog.Handler.
func (h *logs) WithGroup(string) slog.Handler { return h }

// story returns the timeline's text for a log line; empty if it is not important.
func story(r slog.Record) string {
	switch r.Message {
	case "ready to act":
		return "is ready to act"
	case "gave up the lead to a server that can act":
		return "gives up the lead"
	case "term is over":
		return "leads no more"
	case "config can't run, the last accepted one stays active":
		return "finds an invalid config and runs the last accepted one"
	case "problem":
		return hold(r)
	default:
		return ""
	}
}

// hold returns the timeline's text for a problem that a group or the config is held; empty for
// another problem.
func hold(r slog.Record) string {
	told := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { told[a.Key] = a.Value.String(); return true })
	switch told["reason"] {
	case recordMissing:
		return "holds group " + told["group"] + ", whose record is missing"
	case configAwaits:
		return "holds a config that takes groups away, and runs the last accepted one"
	default:
		return ""
	}
}
