package shardstest

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Shard is one shard with a single server. Its state outlives the server. It is safe for
// concurrent use.
type Shard struct {
	*state
	// ID is the shard's name.
	ID string

	world *World
	ip    string

	up     sync.Mutex // held while the server starts or stops
	stop   func()     // nil: it is down
	faults *faults
}

func newShard(w *World, id, ip string) *Shard {
	return &Shard{state: newState(w.tb, id), ID: id, world: w, ip: ip, faults: newFaults()}
}

func (s *Shard) addr() string { return s.ip + ":8993" }

// Service returns the service implementation, for callers that need no server.
func (s *Shard) Service() nstancev1.OperatorServiceServer {
	return &service{state: s.state, faults: s.faults}
}

// Start starts the server, if it is down.
func (s *Shard) Start() {
	s.world.tb.Helper()
	s.up.Lock()
	defer s.up.Unlock()
	if s.stop != nil {
		return
	}
	source := pki.NewSource(s.world.source.Bundle(), s.world.server(s.ID, s.ip))
	e := pki.Endpoint{Cluster: cluster, Source: source, Now: time.Now}
	server, err := rpc.NewServer(rpc.ServerConfig{
		TLS: e.Server(), Cluster: cluster, Access: rpc.Access(), Gate: leading{}, Now: time.Now, Limits: rpc.OperatorLimits(),
		Logger:   slog.New(slog.DiscardHandler),
		Services: func(r grpc.ServiceRegistrar) { nstancev1.RegisterOperatorServiceServer(r, s.Service()) },
	})
	if err != nil {
		s.world.tb.Fatal(err)
	}
	listener := s.world.listen(s.addr())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.world.tb.Errorf("serve: %v", err)
		}
	}()
	s.stop = func() {
		s.world.unlisten(s.addr())
		server.Stop()
		<-done
	}
}

// Stop stops the server: its connections are cut, and no new ones accepted. Processes such as
// drains continue.
func (s *Shard) Stop() {
	s.up.Lock()
	defer s.up.Unlock()
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Move moves the server to another IP address. The Set learns it with the next
// World.Configure.
func (s *Shard) Move(ip string) {
	s.Stop()
	s.up.Lock()
	s.ip = ip
	s.up.Unlock()
	s.Start()
}

func (s *Shard) end() {
	s.Unhang()
	s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.wind()
}

// leading is the Gate of a server that leads.
type leading struct{}

func (leading) Leading() (string, bool) { return "", true }

// SetTiming changes the durations from now on.
func (s *Shard) SetTiming(change func(*Timing)) { s.change(func(time.Time) { change(&s.timing) }) }

// SetCapacity sets the capacity of an instance type; nil: unknown.
func (s *Shard) SetCapacity(instanceType string, c *nstancev1.MachineCapacity) {
	s.change(func(time.Time) {
		s.capacity[instanceType] = c
		for _, g := range s.groups {
			s.touchGroup(g)
		}
	})
}

// NoRoom makes creates fail for lack of capacity: new instances stay pending without a
// machine.
func (s *Shard) NoRoom(on bool) { s.change(func(time.Time) { s.noRoom = on }) }

// RefuseAll makes the provider refuse all further on-demand instances with this error; empty:
// no longer.
func (s *Shard) RefuseAll(words string) { s.change(func(time.Time) { s.refuses = words }) }

// AddGroup creates a dynamic group.
func (s *Shard) AddGroup(name string, size int32, template string) {
	s.change(func(time.Time) { s.define(name, definition{size: size, template: template}, nil) })
}

// Static adds a group to the shard's static config.
func (s *Shard) Static(name string, size int32, template string) {
	s.change(func(time.Time) { s.define(name, definition{size: size, template: template}, &size) })
}

// Dynamic removes a group from the shard's static config; it lives on as a dynamic group.
func (s *Shard) Dynamic(name string) {
	s.change(func(time.Time) {
		if g := s.groups[name]; g != nil {
			g.static, g.staticSize = false, 0
			s.redefine(g)
		}
	})
}

// SetCondition sets a group's condition, or removes it if status is false.
func (s *Shard) SetCondition(group, conditionType string, status bool, reason, message string) {
	s.change(func(time.Time) {
		g := s.groups[group]
		if g == nil {
			s.world.tb.Errorf("set a condition: shard %s has no group %q", s.ID, group)
			return
		}
		g.conditions[conditionType] = &nstancev1.Condition{Type: conditionType, Status: "True", Reason: reason, Message: message}
		if !status {
			delete(g.conditions, conditionType)
		}
		s.touchGroup(g)
	})
}

// Group returns a group's current status; nil if there is none.
func (s *Shard) Group(name string) *nstancev1.GroupStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[name]; g != nil {
		return s.groupStatus(g)
	}
	return nil
}

// Instances returns a group's instances, or all if group is empty, tombstones included, by
// age.
func (s *Shard) Instances(group string) (all []*nstancev1.InstanceStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.byAge() {
		if group == "" || i.Group == group {
			all = append(all, proto.CloneOf(i.InstanceStatus))
		}
	}
	return all
}

// Instance returns an instance's current status; nil if there is none.
func (s *Shard) Instance(id string) *nstancev1.InstanceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instances[id]; i != nil {
		return proto.CloneOf(i.InstanceStatus)
	}
	return nil
}
