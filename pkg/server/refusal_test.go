package server_test

import (
	"slices"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const ghost = "ghost"

// makesGhost requests a group of three and hangs up before the response.
func (p *process) makesGhost(asked <-chan struct{}) {
	p.t.Helper()
	ctx, cancel := p.hangsUp(asked)
	defer cancel()
	ask := &nstancev1.UpsertGroupRequest{Key: ghost, Template: ptr("knd"), Size: ptr(int32(3))}
	if _, err := p.operator("default").UpsertGroup(ctx, ask); err == nil {
		p.t.Fatal("it was acknowledged")
	}
	time.Sleep(250 * time.Millisecond) // the write's grace period
}

func (p *process) deletesGroup(name string) error {
	p.t.Helper()
	_, err := p.operator("default").DeleteGroup(within(p.t), &nstancev1.DeleteGroupRequest{Key: name})
	return err
}

// noGhost fails if a group that was reported absent exists, now or after the next change of
// leader.
func (s *site) noGhost(p *process) {
	s.t.Helper()
	s.store.Wait()
	time.Sleep(10 * time.Second)
	if err := s.forgotten("default", ghost); err != nil {
		s.t.Errorf("the store has it: %v", err)
	}
	p.ends()
	q := s.start(named("c")).awaitLeading()
	time.Sleep(time.Minute)
	if g, err := q.group(ghost); err == nil {
		s.t.Errorf("it is there: %v", g)
	}
	if live := s.living(); len(live) != 2 {
		s.t.Errorf("%d machines run, want the 2 of web: %v", len(live), live)
	}
}

// refusals are errors that depend on the absence of a group.
var refusals = map[string]func(*process) error{
	"delete": func(p *process) error { return p.deletesGroup(ghost) },
	"scale": func(p *process) error {
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: ghost, Size: ptr(int32(1))})
		return err
	},
	"if_etag": func(p *process) error {
		_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: ghost, Template: ptr("knd"), Size: ptr(int32(1)), IfEtag: ptr("0123")})
		return err
	},
}

// TestRefusalOutlivesALateWrite: a caller hangs up on the creation of a group whose write is
// late; another caller is told that the group does not exist. That stays true.
func TestRefusalOutlivesALateWrite(t *testing.T) {
	for name, ask := range refusals {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			p.scale(2)
			sent, lift := s.delayed("groups/", 800*time.Millisecond)
			p.makesGhost(sent)
			lift()
			refusedOneOf(t, ask(p), codes.NotFound, codes.Aborted)
			s.noGhost(p)
		}))
	}
}

// TestRefusalOutlivesALeader: the late write is an earlier leader's.
func TestRefusalOutlivesALeader(t *testing.T) {
	for name, ask := range refusals {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			p.scale(2)
			sent, lift := s.delayed("groups/", lateBy)
			p.makesGhost(sent)
			p.ends()
			lift()
			q := s.start(named("b")).awaitLeading()
			refusedOneOf(t, ask(q), codes.NotFound, codes.Aborted)
			s.noGhost(q)
		}))
	}
}

func refusedOneOf(t *testing.T, err error, want ...codes.Code) {
	t.Helper()
	if !slices.Contains(want, status.Code(err)) {
		t.Errorf("answered %v, want one of %v", err, want)
	}
}
