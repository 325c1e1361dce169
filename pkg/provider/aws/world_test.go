package aws_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/awsclient/iam"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

const (
	region  = "eu-central-1"
	large   = "subnet-0000000000000000a"
	small   = "subnet-0000000000000000b"
	image   = "ami-00000000000000001"
	account = awsclienttest.Account
	vpc     = "vpc-0000000a"
	targets = "arn:aws:elasticloadbalancing:" + region + ":" + account + ":targetgroup/web/0123456789abcdef"
)

var scope = provider.Scope{ClusterID: awsclienttest.Cluster, Shard: "s"}

// cloudConfig returns a cloud with capacity for everything, which allows what a server's policy
// allows.
func cloudConfig(t *testing.T) awstest.Config {
	t.Helper()
	born := time.Date(1999, 1, 2, 0, 0, 0, 0, time.UTC)
	return awstest.Config{
		Region: region, Account: account, Policies: awsclienttest.Rights(t, region, nil, iam.SectionServer),
		Profiles: map[string]string{"agent": "arn:aws:iam::" + account + ":role/agent", "admin": "arn:aws:iam::" + account + ":role/admin"},
		Subnets: []awstest.Subnet{
			{ID: large, VPC: vpc, Zone: region + "a", CIDR: netip.MustParsePrefix("10.0.0.0/22")},
			{ID: small, VPC: vpc, Zone: region + "a", CIDR: netip.MustParsePrefix("10.0.16.0/28")},
		},
		Tags: map[string]map[string]string{
			large: owned(), small: owned(), far: owned(), awstest.DefaultGroup(vpc): owned(), "sg-0000000a": owned(), "sg-00000001": owned(),
			"snap-0000000a": owned(),
		},
		Images: []awstest.Image{
			{ID: image, Owner: account, Name: "agent-1", Arch: "x86_64", State: "available", CreatedAt: born, Tags: map[string]string{"os": "a?b"}},
			{ID: "ami-00000000000000002", Owner: account, Name: "agent-2", Arch: "x86_64", State: "available", CreatedAt: born.Add(time.Hour)},
			{ID: "ami-00000000000000003", Owner: account, Name: "agent-3", Arch: "x86_64", State: "pending", CreatedAt: born.Add(2 * time.Hour)},
			{ID: "ami-00000000000000004", Owner: "210987654321", Name: "agent-9", Arch: "arm64", State: "available", CreatedAt: born},
		},
		InstanceTypes: []awstest.InstanceType{
			{Name: "t3.small", CPUs: 2, MemoryMiB: 2048, Arch: "x86_64"}, {Name: "m7g.large", CPUs: 2, MemoryMiB: 8192, Arch: "arm64"},
		},
	}
}

// owned are the tags of resources that the cluster's launches may use.
func owned() map[string]string { return map[string]string{provider.TagClusterID: scope.ClusterID} }

// serve serves the cloud, and returns a client for it.
func serve(t *testing.T, cloud http.Handler) *http.Client {
	t.Helper()
	return awsclienttest.Serve(t, cloud, region).HTTPClient
}

// keys are credentials, or the error that replaces them.
type keys struct{ err error }

func (k keys) Retrieve(context.Context) (sdk.Credentials, error) {
	return sdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Source: "test"}, k.err
}

// open returns a provider that calls the cloud through client.
func open(t *testing.T, client *http.Client, s provider.Scope) *aws.Provider {
	t.Helper()
	return openWith(t, client, s, keys{})
}

func openWith(t *testing.T, client *http.Client, s provider.Scope, k keys) *aws.Provider {
	t.Helper()
	cfg := aws.Default(s, slog.New(slog.DiscardHandler))
	cfg.Region, cfg.Credentials, cfg.HTTPClient = region, k, client
	p, err := aws.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// spec returns the spec of the n-th VM.
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

// complete adds the args that every launch needs.
func complete(s *provider.Spec) {
	s.Subnet, s.InstanceType, s.Args = large, "t3.small", map[string]any{"ImageId": image}
}

// newWorld returns a cloud and a provider for it, in the test's own simulated time.
func newWorld(t *testing.T, change func(*awstest.Config)) (*awstest.Cloud, *aws.Provider) {
	t.Helper()
	cfg := cloudConfig(t)
	if change != nil {
		change(&cfg)
	}
	cloud := awstest.New(cfg)
	return cloud, open(t, serve(t, cloud), scope)
}

// must creates the VM of a spec.
func must(t *testing.T, p *aws.Provider, s provider.Spec) provider.VM {
	t.Helper()
	vm, err := p.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}
