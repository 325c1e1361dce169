package server_test

import (
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestCreateRefusesWhatExists: an existing group is unchanged, unless it equals the request's
// result.
func TestCreateRefusesWhatExists(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		make := func(change func(*nstancev1.UpsertGroupRequest)) (*nstancev1.GroupStatus, error) {
			req := &nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(1)), Create: true, Vars: ofColour("blue")}
			change(req)
			return p.upsert(req)
		}
		same := func(*nstancev1.UpsertGroupRequest) {}
		_, err := make(func(r *nstancev1.UpsertGroupRequest) { r.Key, r.Size, r.Vars = "web", nil, nil })
		refused(t, err, codes.AlreadyExists, "web")
		first, err := make(same)
		if err != nil {
			t.Fatal(err)
		}
		p.awaitSize("batch", 1)
		again, err := make(same)
		if err != nil || again.GetEtag() != first.GetEtag() {
			t.Errorf("repeated: %v, %v, before %v", again, err, first)
		}
		for name, change := range map[string]func(*nstancev1.UpsertGroupRequest){
			"no size":       func(r *nstancev1.UpsertGroupRequest) { r.Size = nil },
			"another size":  func(r *nstancev1.UpsertGroupRequest) { r.Size = ptr(int32(0)) },
			"no vars":       func(r *nstancev1.UpsertGroupRequest) { r.Vars = nil },
			"other vars":    func(r *nstancev1.UpsertGroupRequest) { r.Vars = ofColour("red") },
			"a type":        func(r *nstancev1.UpsertGroupRequest) { r.InstanceType = ptr("huge") },
			"another surge": func(r *nstancev1.UpsertGroupRequest) { r.MaxSurge = ptr("3") },
		} {
			if _, err := make(change); status.Code(err) != codes.AlreadyExists {
				t.Errorf("%s: %v", name, err)
			}
		}
		if g := s.mustGroup(p, "batch"); g.GetEtag() != first.GetEtag() {
			t.Errorf("batch is %v, was %v", g, first)
		}
		_, err = make(func(r *nstancev1.UpsertGroupRequest) { r.Key, r.Template = "new", nil })
		refused(t, err, codes.InvalidArgument, "template")
		_, err = make(func(r *nstancev1.UpsertGroupRequest) { r.Key, r.IfEtag = "new", ptr("") })
		refused(t, err, codes.InvalidArgument, "if_etag")
		_, err = make(func(r *nstancev1.UpsertGroupRequest) { r.Key, r.Remove = "new", []string{string(s.living()[0])} })
		refused(t, err, codes.InvalidArgument, "remove")

		p.ends() // the next leader has only the stored state
		p = s.successor()
		if again, err := make(same); err != nil || again.GetEtag() != first.GetEtag() {
			t.Errorf("repeated to the next leader: %v, %v, before %v", again, err, first)
		}
		if _, err := p.operator("default").DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "batch"}); err != nil {
			t.Fatal(err)
		}
		if _, err := make(func(r *nstancev1.UpsertGroupRequest) { r.Size = ptr(int32(2)) }); err != nil {
			t.Errorf("made anew while it is being deleted: %v", err)
		}
	})
}

// TestCreateTogether: of concurrent creates with different contents one succeeds.
func TestCreateTogether(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p := running(t)
		var all sync.WaitGroup
		errs := make([]error, 8)
		client := p.operator("default")
		for n := range errs {
			all.Go(func() {
				_, errs[n] = client.UpsertGroup(within(t),
					&nstancev1.UpsertGroupRequest{Key: "new", Template: ptr("knd"), Size: ptr(int32(n)), Create: true})
			})
		}
		all.Wait()
		made := 0
		for n, err := range errs {
			switch status.Code(err) {
			case codes.OK:
				made++
				if g, err := p.group("new"); err != nil || g.GetSize() != int32(n) {
					t.Errorf("new is %v, %v, made by the one with %d", g, err, n)
				}
			case codes.AlreadyExists:
			default:
				t.Error(err)
			}
		}
		if made != 1 {
			t.Errorf("%d were made", made)
		}
	})
}

func ofColour(name string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"colour": structpb.NewStringValue(name)}}
}
