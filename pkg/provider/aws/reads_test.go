package aws_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// TestListPages: all pages are read, and each is reported.
func TestListPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, func(cfg *awstest.Config) { cfg.Subnets[0].CIDR = netip.MustParsePrefix("10.0.0.0/20") })
		tags := spec(t, 1).Tags
		for range 1001 {
			cloud.AddMachine(large, tags, false)
		}
		pages := 0
		vms, err := p.List(provider.WithListing(t.Context(), func() { pages++ }))
		if err != nil || len(vms) != 1001 || pages != 2 || !slices.IsSortedFunc(vms, provider.Compare) {
			t.Errorf("%d VMs on %d pages, %v", len(vms), pages, err)
		}
	})
}

// TestDeadTwinHidesNothing: a terminated or stopped machine may have the same instance id as one
// that runs. A get, and a create whose token was used, find the one that runs.
func TestDeadTwinHidesNothing(t *testing.T) {
	listed := map[string]int{"terminated": 1, "stopped": 7}
	for name, end := range map[string]func(*awstest.Cloud, string) error{
		"terminated": func(c *awstest.Cloud, id string) error { return c.Kill(id, "Server.InternalError", "") },
		"stopped":    (*awstest.Cloud).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, p := newWorld(t, nil)
				s := spec(t, 1)
				for range 6 { // ids are random: either may come first
					if err := end(cloud, cloud.AddMachine(large, s.Tags, false)); err != nil {
						t.Fatal(err)
					}
				}
				living := cloud.AddMachine(large, s.Tags, false)
				time.Sleep(5 * time.Minute) // the stopped ones have come to rest
				if vms, err := p.List(t.Context()); err != nil || len(vms) != listed[name] {
					t.Errorf("list: %d, %v; want %d", len(vms), err, listed[name])
				}
				vm, err := provider.GetOne(t.Context(), p, provider.Ref{ID: s.ID})
				if err != nil || vm.ProviderID != living || vm.State != provider.StateRunning {
					t.Errorf("get: %+v, %v; want %s", vm, err, living)
				}
				cloud.FailNext("RunInstances", 1, awstest.Fault{Code: "IdempotentParameterMismatch", Status: http.StatusBadRequest})
				if vm := must(t, p, s); vm.ProviderID != living {
					t.Errorf("create: %+v, want %s", vm, living)
				}
			})
		})
	}
}

// TestOneCallForMany: a batch is at most two calls, whatever its size.
func TestOneCallForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		var refs []provider.Ref
		for n := range provider.MaxBatch {
			vm := must(t, p, spec(t, n))
			if n%2 == 0 {
				vm.ProviderID = ""
			}
			refs = append(refs, vm.Ref())
		}
		for n, a := range p.Get(t.Context(), refs) {
			if a.Err != nil || a.VM.ID != refs[n].ID {
				t.Errorf("get %d: %+v, %v", n, a.VM, a.Err)
			}
		}
		if n := len(cloud.Calls("DescribeInstances")); n != 2 {
			t.Errorf("%d calls for a get, want 2", n)
		}
		if err := errors.Join(p.Delete(t.Context(), refs)...); err != nil {
			t.Error(err)
		}
		if n := len(cloud.Calls("TerminateInstances")); n != 1 {
			t.Errorf("%d calls for a delete, want 1", n)
		}
	})
}

// TestImagesNeedAnOwner: an image with the right name could belong to any account.
func TestImagesNeedAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		q := provider.ImageQuery{Filters: []provider.ImageFilter{{Name: "name", Values: []string{"agent-*"}}}}
		if got, err := p.ResolveImage(t.Context(), q); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "owners") {
			t.Errorf("%q, %v; want ErrInvalid", got, err)
		}
		if calls := cloud.Calls(""); len(calls) != 0 {
			t.Errorf("called %v", calls)
		}
	})
}

// TestManyNames: more names than fit into one call.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		names := []string{"t3.small", "t3.*", "*"}
		for n := range 250 {
			names = append(names, fmt.Sprintf("x%d.large", n))
		}
		got, err := p.InstanceTypes(t.Context(), names)
		if err != nil || len(got) != 1 || got["t3.small"] != instanceTypes()["t3.small"] {
			t.Errorf("%v, %v", got, err)
		}
		if n := len(cloud.Calls("DescribeInstanceTypes")); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
	})
}

// TestEnvironment: region, endpoint and credentials come from the environment, over a real network.
func TestEnvironment(t *testing.T) {
	cfg := cloudConfig(t)
	cloud := httptest.NewServer(awstest.New(cfg))
	t.Cleanup(cloud.Close)
	inContainer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "let me in" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"AccessKeyId": "AKID", "SecretAccessKey": "s", "Token": "t", "Expiration": %q}`,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(inContainer.Close)
	for name, variables := range map[string]map[string]string{
		"keys":      {"AWS_REGION": region, "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": cloud.URL},
		"container": {"AWS_DEFAULT_REGION": region, "AWS_CONTAINER_CREDENTIALS_FULL_URI": inContainer.URL, "AWS_ENDPOINT_URL_EC2": cloud.URL},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "let me in")
			for name, value := range variables {
				t.Setenv(name, value)
			}
			p, err := aws.New(t.Context(), aws.Default(scope, slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			vm := must(t, p, spec(t, 1))
			if got, err := provider.GetOne(t.Context(), p, vm.Ref()); err != nil || got.Ref() != vm.Ref() {
				t.Errorf("get: %+v, %v", got, err)
			}
		})
	}
}

// clean removes AWS's variables from the environment, and turns the metadata service off.
func clean(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL",
		"AWS_ENDPOINT_URL_EC2", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestPoorEnvironment(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	for name, c := range map[string]struct {
		variables map[string]string
		cfg       aws.Config
		says      string
	}{
		"no region":  {nil, aws.Default(scope, logger), "AWS_REGION"},
		"bad region": {nil, aws.Config{Scope: scope, Logger: logger, Region: "Frankfurt"}, `"Frankfurt"`},
		"no scope":   {nil, aws.Config{Logger: logger, Region: region}, "cluster id"},
		"no logger":  {nil, aws.Config{Scope: scope, Region: region}, "logger"},
		"a stranger's credentials": {
			map[string]string{"AWS_REGION": region, "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/"},
			aws.Default(scope, logger), "https",
		},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			for name, value := range c.variables {
				t.Setenv(name, value)
			}
			if _, err := aws.New(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want an error that says %s", err, c.says)
			}
		})
	}
	clean(t)
	t.Setenv("AWS_REGION", region)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKID")
	p, err := aws.New(t.Context(), aws.Default(scope, logger))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.List(t.Context()); !errors.Is(err, provider.ErrUnauthorized) || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("a key without its secret: %v", err)
	}
}

// bodies inspects the requests' bodies.
type bodies struct {
	http.RoundTripper
	seen int
	open int // those that have more methods than Read and Close
}

func (b *bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	b.seen++
	if _, ok := r.Body.(io.WriterTo); ok {
		b.open++
	}
	return b.RoundTripper.RoundTrip(r)
}

// TestBodiesAreOnlyRead: otherwise net/http would call the SDK's bodies after they were closed for
// a failed write, and drop the reply.
func TestBodiesAreOnlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := serve(t, awstest.New(cloudConfig(t)))
		b := &bodies{RoundTripper: client.Transport}
		p := open(t, &http.Client{Transport: b}, scope)
		vm := must(t, p, spec(t, 1))
		if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
			t.Fatal(err)
		}
		if b.seen != 3 || b.open != 0 {
			t.Errorf("%d of %d bodies, want none of 3", b.open, b.seen)
		}
	})
}

// TestForgetting: an instance that no list has shown for an hour is deleted without a call.
func TestForgetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, p := newWorld(t, nil)
		vm := must(t, p, spec(t, 1))
		if err := cloud.Kill(vm.ProviderID, "Server.InternalError", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour) // EC2 has forgotten it too
		for calls := range 2 {
			if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
				t.Errorf("delete: %v", err)
			}
			if n := len(cloud.Calls("TerminateInstances")); n != 1 {
				t.Errorf("%d calls after delete %d, want 1", n, calls+1)
			}
			if _, err := p.List(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFreeAddresses: some are reserved for others, and IPv6 addresses are not counted.
func TestFreeAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		item string
		want int
	}{
		"many":      {`<availableIpAddressCount>250</availableIpAddressCount>`, 240},
		"eleven":    {`<availableIpAddressCount>11</availableIpAddressCount>`, 1},
		"ten":       {`<availableIpAddressCount>10</availableIpAddressCount>`, 0},
		"none":      {`<availableIpAddressCount>0</availableIpAddressCount>`, 0},
		"IPv6 only": {`<availableIpAddressCount>0</availableIpAddressCount><ipv6Native>true</ipv6Native>`, math.MaxInt32},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := open(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				const reply = `<DescribeSubnetsResponse><subnetSet><item><subnetId>%s</subnetId>%s</item></subnetSet></DescribeSubnetsResponse>`
				_, _ = fmt.Fprintf(w, reply, large, c.item)
			})), scope)
			if got, err := p.FreeAddresses(t.Context(), []string{large}); err != nil || got[large] != c.want {
				t.Errorf("%s: %v, %v; want %d", name, got, err, c.want)
			}
		})
	}
}
