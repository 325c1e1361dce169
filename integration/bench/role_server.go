package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/garbage"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/s3"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server"
)

// serverSettings are those of a server in a process of its own.
type serverSettings struct {
	ID       string           `json:"id"`
	CacheDir string           `json:"cache_dir"`
	Addrs    server.Endpoints `json:"addrs"`

	// Endpoint of dev-s3, whose bucket has the shard's objects already. Empty: an in-memory store
	// of this process, which is filled with Shard and its records.
	Endpoint string      `json:"endpoint"`
	Shard    shard       `json:"shard"`
	Phase    fleet.Phase `json:"phase"`
	Kit      string      `json:"kit"` // where the agents' kit is written

	StoreTakes time.Duration `json:"store_takes"` // each request, in addition

	Telling bool `json:"telling"` // of every act and every durable write
	// Victim: one VM is down when the server starts, so that the leader has something to do.
	Victim  bool   `json:"victim"`
	Dir     string `json:"dir"`     // of profiles
	Profile string `json:"profile"` // name of the profile that begins at once; empty: none until a command
}

const bucket = "bench"

// performer is a server in its role.
type performer struct {
	*stage
	settings serverSettings
	machines *machines
	armed    atomic.Bool // provider calls count from here
	profiler *profiler
}

// playServer runs a server with the fake provider until a command to stop, or SIGTERM.
func playServer(ctx context.Context, s *stage) error {
	go garbage.Govern(ctx) // as nstance-server does
	p := &performer{stage: s}
	if err := s.read(&p.settings); err != nil {
		return err
	}
	p.machines = newMachines(fake.New(fake.Config{OnCall: p.called}))
	store, records, err := p.open(ctx)
	if err != nil {
		return err
	}
	if err := p.machines.plant(ctx, records); err != nil {
		return err
	}
	if p.settings.Victim {
		p.strike(p.machines.world.VMs())
	}
	if p.settings.Profile != "" {
		if err := p.profile(p.settings.Profile); err != nil {
			return err
		}
	}
	p.armed.Store(true)
	go p.obey(ctx)
	if p.settings.StoreTakes > 0 {
		store = slowedStore{store, p.settings.StoreTakes}
	}
	if p.settings.Telling {
		store = watchedStore{store, p.wrote}
	}
	n := node{
		ID: p.settings.ID, Store: store, Provider: watchedMachines{p.machines}, CacheDir: p.settings.CacheDir, Addrs: p.settings.Addrs,
		Logger: slog.New(announcer{slog.NewTextHandler(os.Stderr, nil), s}),
	}
	s.tell(event{Kind: "prepared"})
	return n.run(ctx)
}

// open opens the store, and fills an in-memory one.
func (p *performer) open(ctx context.Context) (object.Store, []fleet.Instance, error) {
	if p.settings.Endpoint != "" {
		store, err := openS3(p.settings.Endpoint)
		if err != nil {
			return nil, nil, err
		}
		records, err := readRecords(ctx, store)
		return store, records, err
	}
	store := mem.New(mem.Config{Latency: storeLatency})
	records, err := p.settings.Shard.records(p.settings.Phase, time.Now())
	if err != nil {
		return nil, nil, err
	}
	objects, err := p.settings.Shard.objects(records)
	if err != nil {
		return nil, nil, err
	}
	if err := fill(ctx, store, objects); err != nil {
		return nil, nil, err
	}
	return store, records, writeKit(ctx, p.settings.Kit, store, records, p.settings.Addrs)
}

func openS3(endpoint string) (object.Store, error) {
	return s3.New(s3.Config{Bucket: bucket, Endpoint: endpoint, PathStyle: true, AccessKeyID: storeKey, SecretAccessKey: storeSecret})
}

// called sends an event for each mutation at the provider.
func (p *performer) called(c fake.Call) {
	if p.settings.Telling && p.armed.Load() && (c.Op == fake.OpCreate || c.Op == fake.OpDelete) {
		p.tell(event{Kind: "act", At: c.Start, Text: string(c.Op) + " " + string(c.Ref.ID)})
	}
}

// wrote sends an event for each durable write, except those of the election and the probe.
func (p *performer) wrote(w put) {
	if !strings.HasPrefix(w.Key, "leader/") && !strings.HasPrefix(w.Key, "probe/") {
		p.tell(event{Kind: "write", At: w.At, Text: w.Key})
	}
}

// strike stops the first VM that runs.
func (p *performer) strike(all []provider.VM) {
	for _, vm := range all {
		if vm.State == provider.StateRunning && p.machines.world.Kill(vm.ID) {
			return
		}
	}
}

// obey executes commands.
func (p *performer) obey(ctx context.Context) {
	for command := range p.commands {
		if err := p.do(command); err != nil {
			slog.Default().LogAttrs(ctx, slog.LevelError, "command failed", slog.String("command", command), slog.Any("error", err))
		}
	}
}

func (p *performer) do(command string) error {
	if id, kill := strings.CutPrefix(command, "kill "); kill {
		p.machines.world.Kill(fleet.InstanceID(id))
		return nil
	}
	switch command {
	case "cpu":
		used, err := cpuTime()
		p.tell(event{Kind: command, Value: used.Seconds()})
		return err
	case "memory":
		p.tell(event{Kind: command, Text: memoryUse()})
	case "strike":
		all := p.machines.world.VMs()
		slices.Reverse(all) // a standby, which has VMs of its own, may have stopped the first
		p.strike(all)
	case "forget":
		p.machines.world.ForgetCalls()
	case "profile":
		return p.profile(p.settings.ID)
	case "profiled":
		err := p.stopProfile()
		p.tell(event{Kind: command})
		return err
	default:
		return errors.New("no such command")
	}
	return nil
}

func (p *performer) profile(name string) (err error) {
	p.profiler, err = startProfiler(p.settings.Dir, name)
	return err
}

func (p *performer) stopProfile() error {
	if p.profiler == nil {
		return errors.New("no profile was begun")
	}
	err := p.profiler.stop()
	p.profiler = nil
	return err
}

// cpuTime returns the CPU time of this process, user and system.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// announcer sends events for the log lines that mark the start of a term.
type announcer struct {
	slog.Handler
	stage *stage
}

// Handle implements slog.Handler.
func (a announcer) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case "leading", "ready to act", "took over", "serving", "term is over":
		a.stage.tell(event{Kind: r.Message, At: r.Time})
	default:
	}
	return a.Handler.Handle(ctx, r)
}
