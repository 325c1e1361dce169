//go:build integration

package aws

import (
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

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
	"github.com/nstance/nstance/pkg/secrets/secretstest"
)

// keeper is a service of AWS that keeps secrets.
type keeper struct {
	provider string
	limit    int // of a value, in bytes
	service  awsclient.Service
	target   string // before an action's name
	remove   string // the action
}

func keepers() map[string]keeper {
	return map[string]keeper{
		"SecretsManager": {secrets.ProviderSecretsManager, 64 << 10, awsclient.SecretsManager, "secretsmanager", "DeleteSecret"},
		"ParameterStore": {secrets.ProviderParameterStore, 3045, awsclient.ParameterStore, "AmazonSSM", "DeleteParameter"},
	}
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

// forget deletes what was made.
func (e *endpoint) forget(t *testing.T, of keeper, names []string) {
	t.Helper()
	client, err := awscall.New(e.session, of.service)
	must(t, err)
	for _, name := range names {
		in := map[string]any{"Name": name}
		if of.service == awsclient.SecretsManager {
			in = map[string]any{"SecretId": name, "ForceDeleteWithoutRecovery": true}
		}
		e.within(t, "delete "+name, func(ctx context.Context) error {
			err := client.JSON(ctx, of.target, of.remove, in, &struct{}{}, awscall.Attempts{})
			if awscall.Coded(err, "ResourceNotFoundException", "ParameterNotFound") {
				return nil
			}
			return err
		})
	}
}

// line is what calls go over. It drops writes, or their replies, and knows what was made.
type line struct {
	mu    sync.Mutex
	fault secretstest.Fault
	left  int // writes that meet the fault
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
	dropped, lost := l.meets(r)
	if dropped {
		return nil, errLine
	}
	reply, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !lost {
		return reply, err
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return nil, errors.Join(errLine, err, reply.Body.Close())
}

// meets says what a call meets, and notes what it is about to make.
func (l *line) meets(r *http.Request) (dropped, lost bool) {
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
		l.note(r)
	}
	return dropped, lost
}

// note remembers the name that a request gives to what it makes.
func (l *line) note(r *http.Request) {
	body, err := r.GetBody()
	if err != nil {
		return
	}
	var named struct{ Name string }
	if json.NewDecoder(body).Decode(&named) == nil && named.Name != "" {
		l.made[named.Name] = true
	}
}
