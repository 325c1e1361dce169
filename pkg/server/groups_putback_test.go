package server_test

import (
	"strings"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// TestGoodCopyPutBack: restoring a record ends the hold of its group, despite its old rev. If it
// differs from the known version, the group stays held.
func TestGoodCopyPutBack(t *testing.T) {
	for name, c := range map[string]struct {
		size string // of job in the restored record
		held bool
	}{"as it was": {"9", false}, "smaller": {"8", true}, "larger": {"10", true}} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p, _ := elevenOf(t)
			machines := s.living()
			jobAt := groupAt("default", "job")
			job, web := s.get(jobAt), s.get(webAt)
			s.remove(jobAt)
			s.remove(webAt)
			p.idle()
			for _, key := range []string{"job", "web"} {
				if g := s.mustGroup(p, key); condition(g, missingGroup) == nil {
					t.Fatalf("before: %s is %v", key, g)
				}
			}
			etag := s.mustGroup(p, "web").GetEtag()
			s.put(jobAt, strings.Replace(job, `"size":9`, `"size":`+c.size, 1))
			s.put(webAt, web)
			p.idle()
			s.keptAll("with the copy", machines)
			for _, taken := range []bool{false, true} {
				if taken {
					p.ends()
					p = s.successorNamed("c") // without a cache
					time.Sleep(3 * time.Minute)
				}
				if g := s.mustGroup(p, "job"); (condition(g, missingGroup) != nil) != c.held || g.GetSize() != 9 {
					t.Errorf("taken over %v: job is %v", taken, g)
				}
				if g := s.mustGroup(p, "web"); condition(g, missingGroup) != nil || g.GetSize() != 2 || g.GetEtag() == etag {
					t.Errorf("taken over %v: web is %v, was of etag %s while it was held", taken, g, etag)
				}
			}
			s.keptAll("after a takeover", machines)
		}))
	}
}

// define gives a held group its definition again. The same call may be repeated after a lost
// reply, but no other.
func (s *site) define(p *process) {
	s.t.Helper()
	create := func(change func(*nstancev1.UpsertGroupRequest)) (*nstancev1.GroupStatus, error) {
		req := &nstancev1.UpsertGroupRequest{Key: "job", Template: ptr("knd"), Create: true}
		change(req)
		return p.upsert(req)
	}
	same := func(*nstancev1.UpsertGroupRequest) {}
	first, err := create(same)
	if err != nil {
		s.t.Fatal(err)
	}
	for range 2 {
		if again, err := create(same); err != nil || again.GetEtag() != first.GetEtag() || again.GetSize() != 9 {
			s.t.Errorf("repeated: %v, %v, was %v", again, err, first)
		}
	}
	for name, change := range map[string]func(*nstancev1.UpsertGroupRequest){
		"a size":         func(r *nstancev1.UpsertGroupRequest) { r.Size = ptr(int32(1)) },
		"vars":           func(r *nstancev1.UpsertGroupRequest) { r.Vars = ofColour("red") },
		"another surge":  func(r *nstancev1.UpsertGroupRequest) { r.MaxSurge = ptr("3") },
		"a machine type": func(r *nstancev1.UpsertGroupRequest) { r.InstanceType = ptr("huge") },
	} {
		_, err := create(change)
		refused(s.t, err, codes.AlreadyExists, "job")
		if g := s.mustGroup(p, "job"); g.GetEtag() != first.GetEtag() {
			s.t.Errorf("%s: it is %v, was %v", name, g, first)
		}
	}
	if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Size: ptr(int32(9))}); err != nil {
		s.t.Fatal(err)
	}
	_, err = create(same) // its size was requested explicitly
	refused(s.t, err, codes.AlreadyExists, "job")
}
