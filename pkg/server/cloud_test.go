package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

const www = "arn:aws:elasticloadbalancing:www"

// cloudy is a site whose config has images and load balancers.
func cloudy(t *testing.T, groups string) *site {
	t.Helper()
	s := newSite(t)
	s.config["GROUPS"] = `"default": { ` + groups + ` } },
	  "images": {
	    "os": { "provider": "aws", "owners": ["debian"], "filters": [{ "name": "name", "values": ["debian-13-*"] }] },
	    "saved": { "provider": "aws", "filters": [{ "name": "name", "values": ["nothing-*"] }], "fallback": "ami-saved" },
	    "lost": { "provider": "aws", "filters": [{ "name": "name", "values": ["nothing-*"] }] },
	    "unused": { "provider": "aws", "filters": [{ "name": "name", "values": ["unused"] }] }
	  },
	  "load_balancers": { "www": { "provider": "aws", "target_group_arns": ["` + www + `"] } },
	  "defaults": { "tenants": ["default"], "userdata": { "source": "inline", "content": "boot {{ index .Image \"os\" }}" }`
	s.putConfig(shardID)
	s.world.AddImage(fake.Image{ID: "ami-13", Owner: "debian", Name: "debian-13-arm64-1"})
	s.world.AddImage(fake.Image{ID: "ami-12", Owner: "debian", Name: "debian-12-arm64-1"})
	return s
}

// registered returns the machines that receive the traffic of www.
func (s *site) registered() []string { return slices.Sorted(maps.Keys(s.world.TargetHealth(www))) }

// machines returns the provider IDs of the live VMs.
func (s *site) machines() (ids []string) {
	for _, vm := range s.world.VMs() {
		if vm.State.Alive() {
			ids = append(ids, vm.ProviderID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *site) awaitRegistered() {
	s.t.Helper()
	eventually(s.t, "www knows the living", func() error {
		if got, want := s.registered(), s.machines(); !slices.Equal(got, want) {
			return fmt.Errorf("registered %v, alive %v", got, want)
		}
		return nil
	})
}

// TestImagesAndLoadBalancers: images that were found by their properties reach args and
// userdata, and instances are registered with the load balancer; the next leader registers
// none again.
func TestImagesAndLoadBalancers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := cloudy(t, `"web": { "template": "knd", "size": 2, "load_balancers": ["www"],
		"args": { "ImageId": "{{ .Image.os }}", "Old": "{{ .Image.saved }}" } }`)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		s.awaitRegistered()
		for _, id := range s.living() {
			spec, _ := s.world.Spec(id)
			if spec.Args["ImageId"] != "ami-13" || spec.Args["Old"] != "ami-saved" || string(spec.Userdata) != "boot ami-13" {
				t.Errorf("made with %v and %q", spec.Args, spec.Userdata)
			}
		}
		if n := len(s.world.Calls(fake.OpImage)); n != 2 {
			t.Errorf("%d lookups, want one for each image that is used", n)
		}

		p.ends()
		q := s.successor()
		if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		q.awaitSize("web", 1)
		s.awaitRegistered()
		if n := len(s.world.Calls(fake.OpRegister)); n != 2 {
			t.Errorf("%d registrations of two instances, under two leaders", n)
		}
		for _, c := range s.world.Calls(fake.OpDelete) {
			first := slices.IndexFunc(s.world.Calls(fake.OpDeregister, fake.OpDelete), func(o fake.Call) bool { return o.Ref.ID == c.Ref.ID })
			if got := s.world.Calls(fake.OpDeregister, fake.OpDelete)[first]; got.Op != fake.OpDeregister {
				t.Errorf("%s was deleted before it was deregistered", c.Ref.ID)
			}
		}
	})
}

// trouble waits until a group's status has a problem with these words.
func (p *process) trouble(key, words string) {
	p.t.Helper()
	eventually(p.t, key+" is in trouble over "+words, func() error {
		g, err := p.group(key)
		if err != nil {
			return err
		}
		for _, c := range g.GetConditions() {
			if strings.Contains(c.GetMessage(), words) {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", g.GetConditions())
	})
}

// TestImageThatIsNotThere stops only the groups that use it, until it exists.
func TestImageThatIsNotThere(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := cloudy(t, `"web": { "template": "knd", "size": 1 },
		"lost": { "template": "knd", "size": 1, "args": { "ImageId": "{{ .Image.lost }}" } }`)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 1)
		p.trouble("lost", "images.lost")
		if n := len(s.records()); n != 1 {
			t.Errorf("%d records, want that of web alone", n)
		}
	})
}

// TestProviderWithoutTheOptionalParts runs what it supports, and reports the rest.
func TestProviderWithoutTheOptionalParts(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := cloudy(t, `"web": { "template": "knd", "size": 1, "load_balancers": ["www"] },
		"api": { "template": "big", "size": 1, "load_balancers": ["www"] }`)
		s.config["GROUPS"] = strings.Replace(s.config["GROUPS"], `{{ index .Image \"os\" }}`, `{{ index .Image \"saved\" }}`, 1)
		s.putConfig(shardID)
		p := s.start(func(c *server.Config) {
			c.OpenProvider = func(o server.Opening) (provider.Provider, error) {
				return struct{ provider.Provider }{s.world.Open(o.Scope, "a")}, nil
			}
		})
		s.populate(p)
		p.awaitSize("web", 1)
		p.awaitSize("api", 1)
		eventually(t, "the log says what the provider can't do", func() error {
			text := p.log.String()
			for _, words := range []string{"images.saved: still using ami-saved", "register with load_balancers [www]"} {
				if !strings.Contains(text, words) {
					return fmt.Errorf("nothing of %q", words)
				}
			}
			return nil
		})
		if spec, _ := s.world.Spec(s.living()[0]); string(spec.Userdata) != "boot ami-saved" {
			t.Errorf("made with %q", spec.Userdata)
		}
	})
}

// TestDynamicSubnetPools: a group created through the API may only use the pools for dynamic
// groups, set by itself or its template.
func TestDynamicSubnetPools(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		for name, req := range map[string]*nstancev1.UpsertGroupRequest{
			"by its own word": {Key: "job", Template: ptr("knd"), Size: ptr(int32(1)), SubnetPool: ptr("closed")},
			"by its template": {Key: "job", Template: ptr("big"), Size: ptr(int32(1))},
			"not there":       {Key: "job", Template: ptr("knd"), Size: ptr(int32(1)), SubnetPool: ptr("nowhere")},
		} {
			_, err := p.upsert(req)
			if refused(t, err, codes.InvalidArgument); !slices.Equal(fields(err), []string{"subnet_pool"}) {
				t.Errorf("%s: %v, fields %v", name, err, fields(err))
			}
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Template: ptr("big"), Size: ptr(int32(1)),
			SubnetPool: ptr("workers")}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("job", 1)
		for _, r := range s.records() {
			if r.Group == "job" && (r.Phase != fleet.Running || r.Provider.Subnet != "a") {
				t.Errorf("record: %+v", r)
			}
		}
	})
}
