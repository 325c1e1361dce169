//go:build integration

package aws

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
	"github.com/nstance/nstance/pkg/secrets/secretstest"
)

// keeper is a service of AWS that stores secrets.
type keeper struct {
	provider string
	limit    int // maximum length of a value, in bytes
	service  awsclient.Service
	remove   func(ctx context.Context, cfg sdk.Config, name string) error
}

func keepers() map[string]keeper {
	return map[string]keeper{
		"SecretsManager": {secrets.ProviderSecretsManager, 64 << 10, awsclient.SecretsManager, removeSecret},
		"ParameterStore": {secrets.ProviderParameterStore, 3045, awsclient.ParameterStore, removeParameter},
	}
}

func removeSecret(ctx context.Context, cfg sdk.Config, name string) error {
	in := secretsmanager.DeleteSecretInput{SecretId: &name, ForceDeleteWithoutRecovery: sdk.Bool(true)}
	_, err := secretsmanager.NewFromConfig(cfg).DeleteSecret(ctx, &in)
	return err
}

func removeParameter(ctx context.Context, cfg sdk.Config, name string) error {
	_, err := ssm.NewFromConfig(cfg).DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: &name})
	return err
}

// keeps runs the contract of secrets against a service.
func (e *endpoint) keeps(t *testing.T, of keeper, skip skipped) {
	secretstest.Run(t, secretstest.Harness{Around: skip.around, New: func(t *testing.T) secretstest.World {
		line := &line{made: map[string]bool{}}
		t.Cleanup(func() { e.forget(t, of, line.names()) })
		prefix := e.run + "/" + t.Name()[strings.LastIndex(t.Name(), "/")+1:] + "/"
		return secretstest.World{
			Open: func(t *testing.T) secrets.Secrets {
				s, err := secrets.Open(t.Context(), secrets.Config{
					Provider: of.provider, Prefix: prefix, Random: rand.Reader,
					Backends: aws.Backends(awsclient.Config{Region: e.session.Region, HTTPClient: &http.Client{Transport: line}}),
				})
				must(t, err)
				return s
			},
			Fail: line.fail, Down: line.cut, Limit: of.limit, Eventual: e.eventual,
		}
	}})
}

// forget deletes what was created.
func (e *endpoint) forget(t *testing.T, of keeper, names []string) {
	t.Helper()
	cfg, err := e.session.Brief(of.service)
	must(t, err)
	for _, name := range names {
		e.within(t, "delete "+name, func(ctx context.Context) error {
			err := of.remove(ctx, cfg, name)
			if awsclient.Coded(err, "ResourceNotFoundException", "ParameterNotFound") {
				return nil
			}
			return err
		})
	}
}

// line is a transport that drops writes or their replies, and records what was created.
type line struct {
	mu    sync.Mutex
	fault secretstest.Fault
	left  int // number of writes that will fail
	down  bool
	made  map[string]bool
}

var errLine = errors.New("the line is broken")

func (l *line) fail(f secretstest.Fault, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault, l.left = f, n
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
}

func (l *line) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name := range l.made {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	dropped, lost := l.meets(r, body)
	if dropped {
		return nil, errLine
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	reply, err := http.DefaultTransport.RoundTrip(again)
	if err != nil || !lost {
		return reply, err
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return nil, errors.Join(errLine, err, reply.Body.Close())
}

// meets returns a call's fault, and records what the call is about to create.
func (l *line) meets(r *http.Request, body []byte) (dropped, lost bool) {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return true, false
	}
	if !slices.Contains([]string{"CreateSecret", "PutSecretValue", "PutParameter"}, action) {
		return false, false
	}
	if l.left > 0 {
		l.left--
		dropped, lost = l.fault == secretstest.Dropped, l.fault == secretstest.Lost
	}
	if !dropped {
		l.note(body)
	}
	return dropped, lost
}

// note records the name that a request gives to what it creates.
func (l *line) note(body []byte) {
	var named struct{ Name string }
	if json.Unmarshal(body, &named) == nil && named.Name != "" {
		l.made[named.Name] = true
	}
}
