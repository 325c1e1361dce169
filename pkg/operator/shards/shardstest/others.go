package shardstest

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Changes by other clients. Calls does not list them.

// Upsert changes or creates a group like another operator, by force.
func (s *Shard) Upsert(req *nstancev1.UpsertGroupRequest) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	req = proto.CloneOf(req)
	req.Force = true
	if _, err := s.upsert(req); err != nil {
		s.tb.Errorf("change a group of shard %s: %v", s.id, err)
	}
}

// Delete deletes a group like another operator, by force.
func (s *Shard) Delete(group string) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.deleteGroup(&nstancev1.DeleteGroupRequest{Key: group, Force: true}); err != nil {
		s.tb.Errorf("shard %s: %v", s.id, err)
	}
}

// WithoutManagers makes the shard one of a version that knows no managers of groups.
func WithoutManagers(s *Shard) { s.change(func(time.Time) { s.unmanaged = true }) }

// Race inserts another operator's change before each of the next n changes of existing groups.
func (s *Shard) Race(n int) { s.change(func(time.Time) { s.races = n }) }

func (s *state) race(name string) {
	if g := s.groups[name]; g != nil && s.races > 0 {
		s.races--
		s.redefine(g)
		s.changed.send()
	}
}

// Template sets the vars of a template in the static config.
func (s *Shard) Template(name string, vars map[string]any) {
	s.tb.Helper()
	all, err := structpb.NewStruct(vars)
	if err != nil {
		s.tb.Fatalf("the vars of template %s: %v", name, err)
	}
	s.change(func(time.Time) {
		s.vars[name] = all
		for _, g := range s.groups {
			s.redefine(g)
		}
	})
}
