package aws_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

const (
	region  = "eu-central-1"
	large   = "subnet-0000000000000000a"
	small   = "subnet-0000000000000000b"
	image   = "ami-00000000000000001"
	account = "123456789012"
)

var scope = provider.Scope{ClusterID: "c", Shard: "s"}

// cloudConfig is a cloud with room for everything.
func cloudConfig() awsfake.Config {
	born := time.Date(1999, 1, 2, 0, 0, 0, 0, time.UTC)
	return awsfake.Config{
		Region: region, Account: account,
		Subnets: []awsfake.Subnet{
			{ID: large, VPC: "vpc-0000000a", Zone: region + "a", CIDR: netip.MustParsePrefix("10.0.0.0/22")},
			{ID: small, VPC: "vpc-0000000a", Zone: region + "a", CIDR: netip.MustParsePrefix("10.0.16.0/28")},
		},
		Images: []awsfake.Image{
			{ID: image, Owner: account, Name: "agent-1", Arch: "x86_64", State: "available", CreatedAt: born, Tags: map[string]string{"os": "a?b"}},
			{ID: "ami-00000000000000002", Owner: account, Name: "agent-2", Arch: "x86_64", State: "available", CreatedAt: born.Add(time.Hour)},
			{ID: "ami-00000000000000003", Owner: account, Name: "agent-3", Arch: "x86_64", State: "pending", CreatedAt: born.Add(2 * time.Hour)},
			{ID: "ami-00000000000000004", Owner: "210987654321", Name: "agent-9", Arch: "arm64", State: "available", CreatedAt: born},
		},
		InstanceTypes: []awsfake.InstanceType{
			{Name: "t3.small", CPUs: 2, MemoryMiB: 2048, Arch: "x86_64"}, {Name: "m7g.large", CPUs: 2, MemoryMiB: 8192, Arch: "arm64"},
		},
	}
}

// net1 is a network with one server on it, inside the test's own bubble of time.
type net1 struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (n *net1) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *net1) Close() error   { n.once.Do(func() { close(n.done) }); return nil }
func (n *net1) Addr() net.Addr { return &net.IPAddr{} }

func (n *net1) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.conns <- far:
		return near, nil
	case <-n.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve makes the cloud answer, and returns who calls it.
func serve(t *testing.T, cloud http.Handler) *http.Client {
	t.Helper()
	n := &net1{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: cloud, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(n) }()
	transport := &http.Transport{DialContext: n.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the cloud ended: %v", err)
		}
	})
	return &http.Client{Transport: transport}
}

// keys are credentials, or the reason why there are none.
type keys struct{ err error }

func (k keys) Retrieve(context.Context) (sdk.Credentials, error) {
	return sdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Source: "test"}, k.err
}

// open returns a provider that calls the cloud behind client.
func open(t *testing.T, client *http.Client, s provider.Scope) *aws.Provider {
	t.Helper()
	return openWith(t, client, s, keys{})
}

func openWith(t *testing.T, client *http.Client, s provider.Scope, k keys) *aws.Provider {
	t.Helper()
	cfg, err := aws.Default(s, slog.New(slog.DiscardHandler)).WithOptions(map[string]any{
		"region": region, "endpoint": "http://ec2." + region + ".test",
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Credentials, cfg.HTTPClient = k, client
	p, err := aws.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// spec asks for the n-th VM.
func spec(t *testing.T, n int) provider.Spec {
	t.Helper()
	id, err := fleet.NewID("knc", time.UnixMilli(int64(n)), bytes.NewReader(make([]byte, 16)))
	if err != nil {
		t.Fatal(err)
	}
	s := provider.Spec{
		ID: id, Hostname: string(id), Arch: "amd64", Userdata: []byte("#!/bin/sh\n"),
		Tags: scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"}),
	}
	complete(&s)
	return s
}

// complete adds what EC2 wants of every launch.
func complete(s *provider.Spec) {
	s.Subnet, s.InstanceType, s.Args = large, "t3.small", map[string]any{"ImageId": image}
}

// newWorld is a cloud and a provider that calls it, in the test's own bubble of time.
func newWorld(t *testing.T, change func(*awsfake.Config)) (*awsfake.Cloud, *aws.Provider) {
	t.Helper()
	cfg := cloudConfig()
	if change != nil {
		change(&cfg)
	}
	cloud := awsfake.New(cfg)
	return cloud, open(t, serve(t, cloud), scope)
}

// must makes the VM of a spec.
func must(t *testing.T, p *aws.Provider, s provider.Spec) provider.VM {
	t.Helper()
	vm, err := p.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}
