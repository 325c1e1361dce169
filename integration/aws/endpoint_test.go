//go:build integration

package aws

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
	"github.com/nstance/nstance/pkg/provider/providertest"
)

// The environment variables that configure TestEndpoint.
const (
	endpointVariable = "AWS_ENDPOINT_URL"
	realVariable     = "NSTANCE_TEST_REAL_AWS"
	skipVariable     = "NSTANCE_TEST_AWS_SKIP"
)

// TestEndpoint tests the assumptions of our code about AWS, including signatures, transport and
// replies, on other implementations than our own, and on AWS itself.
func TestEndpoint(t *testing.T) {
	wanted(t)
	skip := skips(t)
	e := openEndpoint(t)
	t.Run("EC2", func(t *testing.T) {
		providertest.Run(t, providertest.Harness{Around: skip.around, New: e.world})
	})
	for name, of := range keepers() {
		t.Run(name, func(t *testing.T) { e.keeps(t, of, skip) })
	}
}

// wanted skips the test unless it was requested, before it could cost anything.
func wanted(t *testing.T) {
	t.Helper()
	url, spend := os.Getenv(endpointVariable), os.Getenv(realVariable)
	switch {
	case spend != "" && spend != "spend":
		t.Fatalf("%s %q: want spend, which has AWS bill you some cents, or nothing", realVariable, spend)
	case url == "" && spend == "":
		t.Skipf("SKIPPED: nothing to call: want %s=http://…, or %s=spend, which costs cents", endpointVariable, realVariable)
	case spend == "" && costs() != "":
		t.Skipf("SKIPPED: %s is AWS itself: want %s=spend, which costs cents", costs(), realVariable)
	}
}

// costs returns an endpoint of the environment that is AWS's own; each service may have one.
func costs() string {
	for _, variable := range os.Environ() {
		own := strings.Contains(variable, ".amazonaws.") || strings.Contains(variable, ".api.aws")
		if own && strings.HasPrefix(variable, endpointVariable) {
			return variable
		}
	}
	return ""
}

// skipped are the cases that an endpoint can't pass, with the reasons.
type skipped map[string]string

// skips parses EC2/Name=reason;SecretsManager/Name=reason. A reason is required.
func skips(t *testing.T) skipped {
	t.Helper()
	out := skipped{}
	for _, one := range strings.Split(os.Getenv(skipVariable), ";") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		name, reason, _ := strings.Cut(one, "=")
		if strings.TrimSpace(reason) == "" {
			t.Fatalf("%s %q: want a case and the reason why it is skipped, such as EC2/SubnetFull=subnets have no end", skipVariable, one)
		}
		out[strings.TrimSpace(name)] = strings.TrimSpace(reason)
	}
	return out
}

// around skips a case by its name, with the reason.
func (s skipped) around(t *testing.T, f func(*testing.T)) {
	t.Helper()
	name := strings.TrimPrefix(t.Name(), "TestEndpoint/")
	if reason, ok := s[name]; ok {
		t.Skipf("SKIPPED %s: %s", name, reason)
	}
	f(t)
}

// world is a case's part of an endpoint: a cluster of its own.
func (e *endpoint) world(t *testing.T) providertest.World {
	e.worlds++
	cluster := fmt.Sprintf("%s-%d", e.run, e.worlds)
	t.Cleanup(func() { e.sweep(t, cluster) })
	return providertest.World{
		Cluster:  cluster,
		Open:     e.open,
		Complete: e.complete,
		Kill:     e.stop,
		Killed:   "Client.UserInitiatedShutdown: User initiated shutdown",
		Plant:    e.plant,
		Patience: e.patience, Eventual: e.eventual,
		Target: e.target, MissingTarget: e.missingTarget,
		Subnet: e.small, Images: e.imageCases(t),
		InstanceTypes: map[string]provider.InstanceType{
			"t3.micro": {CPUMillis: 2000, MemoryBytes: 1 << 30, Arch: "amd64"},
			"t4g.nano": {CPUMillis: 2000, MemoryBytes: 1 << 29, Arch: "arm64"},
		},
		BadArgs: []map[string]any{{}, {"ImageId": 1}, {"ImageId": e.image, "ClientToken": "mine"}},
	}
}

// lastResort makes an instance terminate itself in case nothing else does.
const lastResort = "#!/bin/sh\nshutdown -h +60\n"

// complete adds the args that every launch needs.
func (e *endpoint) complete(s *provider.Spec) {
	s.Subnet, s.InstanceType, s.Userdata = e.subnet, e.instanceType, []byte(lastResort)
	s.Args = map[string]any{"ImageId": e.image, "InstanceInitiatedShutdownBehavior": "terminate"}
}

// open returns a provider configured as in a server, with the environment's credentials.
func (e *endpoint) open(t *testing.T, s provider.Scope) provider.Provider {
	t.Helper()
	cfg := aws.Default(s, slog.New(slog.DiscardHandler))
	cfg.Region, cfg.HTTPClient = e.session.Region, e.client
	p, err := aws.New(t.Context(), cfg)
	must(t, err)
	return p
}

// timing is how long changes and stale reads may take, which is longer at AWS itself than on this
// machine. Consistent reads are never guaranteed.
func timing() (patience, eventual time.Duration) {
	if os.Getenv(realVariable) != "" {
		return 10 * time.Minute, 10 * time.Second
	}
	return 3 * time.Minute, 100 * time.Millisecond
}
