package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
	"github.com/nstance/nstance/pkg/secrets/secretstest"
)

// limits returns the providers with their maximum value lengths in bytes.
func limits() map[string]int {
	return map[string]int{secrets.ProviderSecretsManager: 64 << 10, secrets.ProviderParameterStore: 3045}
}

// writes returns the actions that change something.
func writes() []string { return []string{"CreateSecret", "PutSecretValue", "PutParameter"} }

// actions returns the actions that read and write a provider's secrets.
func actions(provider string) (create, replace, get string) {
	if provider == secrets.ProviderParameterStore {
		return "PutParameter", "PutParameter", "GetParameter"
	}
	return "CreateSecret", "PutSecretValue", "GetSecretValue"
}

func TestConformance(t *testing.T) {
	for provider, limit := range limits() {
		for _, lag := range []time.Duration{0, 2 * time.Second} {
			t.Run(fmt.Sprint(provider, lag), func(t *testing.T) {
				secretstest.Run(t, secretstest.Harness{Around: synctest.Test, New: func(t *testing.T) secretstest.World {
					cloud := newCloud(t, func(cfg *awstest.Config) { cfg.Lag = lag })
					return newWorld(t, cloud, provider, limit, lag)
				}})
			})
		}
	}
}

func newWorld(t *testing.T, cloud *awstest.Cloud, provider string, limit int, lag time.Duration) secretstest.World {
	t.Helper()
	c, seed := awsclienttest.Serve(t, cloud, region), byte(0)
	fail := func(f awstest.Fault, n int, actions ...string) {
		for _, action := range actions {
			cloud.FailNext(action, n, f)
		}
	}
	return secretstest.World{
		Open: func(t *testing.T) secrets.Secrets {
			seed++
			return must(t, c, provider, seed)
		},
		Fail: func(f secretstest.Fault, n int) {
			cloud.ClearFaults()
			fail(awstest.Fault{Dropped: f == secretstest.Dropped, Lost: f == secretstest.Lost}, n, writes()...)
		},
		Down: func() {
			fail(awstest.Fault{Dropped: true}, 1000, append(writes(), "GetSecretValue", "GetParameter")...)
		},
		Limit: limit, Eventual: lag,
	}
}

// TestFormAtAWS: the stored form is a contract, which later versions read.
func TestFormAtAWS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := awsclienttest.Serve(t, newCloud(t, nil), region)
		for provider, want := range map[string]string{
			secrets.ProviderSecretsManager: "v", secrets.ProviderParameterStore: "dg== ",
		} {
			if _, err := must(t, c, provider, 1).Create(t.Context(), "x", []byte("v")); err != nil {
				t.Fatal(err)
			}
			name := map[string]string{secrets.ProviderSecretsManager: prefix + "x", secrets.ProviderParameterStore: "/" + prefix + "x"}[provider]
			if got, err := aws.Sources(c)[provider](t.Context(), name); err != nil || !strings.HasPrefix(string(got), want) {
				t.Errorf("%s has %q, %v; want %q", provider, got, err, want)
			}
		}
	})
}

// TestStoredByHand: values stored by hand are text, and without a token.
func TestStoredByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newCloud(t, nil)
		c := awsclienttest.Serve(t, cloud, region)
		cloud.Secrets.Put(prefix+"x", "text")
		cloud.Parameters.Put("/"+prefix+"x", "dGV4dA==\n")
		cloud.Parameters.Put("/"+prefix+"y", "not base64!")
		for provider := range limits() {
			if got, err := must(t, c, provider, 1).Get(t.Context(), "x"); err != nil || string(got) != "text" {
				t.Errorf("%s: %q, %v", provider, got, err)
			}
		}
		_, err := must(t, c, secrets.ProviderParameterStore, 1).Get(t.Context(), "y")
		if !errors.Is(err, secrets.ErrSealed) || strings.Contains(err.Error(), "not base64!") {
			t.Errorf("a text that is no base64: %v", err)
		}
		if err := cloud.Secrets.ScheduleDeletion(prefix + "x"); err != nil {
			t.Fatal(err)
		}
		_, created := must(t, c, secrets.ProviderSecretsManager, 1).Create(t.Context(), "x", []byte("v"))
		_, got := must(t, c, secrets.ProviderSecretsManager, 1).Get(t.Context(), "x")
		for _, err := range []error{created, got} {
			if err == nil || errors.Is(err, object.ErrUnknown) || errors.Is(err, secrets.ErrNotFound) || !strings.Contains(err.Error(), "deletion") {
				t.Errorf("one that is to be deleted: %v", err)
			}
		}
	})
}

func TestPrefixes(t *testing.T) {
	c := awsclienttest.Serve(t, newCloud(t, nil), region)
	for provider := range limits() {
		for _, p := range []string{"", "/", "nstance", "a//", "a b/", "é/", "/nstance/", "aws/", "Ssm-x/", strings.Repeat("x", 256) + "/"} {
			if _, err := openSecrets(t, c, provider, p, 1); err == nil || !strings.Contains(err.Error(), "nstance/example/") {
				t.Errorf("%s, prefix %q: %v, want a refusal with an example", provider, p, err)
			}
		}
	}
}

// TestRefusals: a definite error is not retried.
func TestRefusals(t *testing.T) {
	for provider := range limits() {
		synctest.Test(t, func(t *testing.T) {
			cloud := newCloud(t, nil)
			s := must(t, awsclienttest.Serve(t, cloud, region), provider, 1)
			create, _, get := actions(provider)
			denied := awstest.Fault{Code: "AccessDeniedException", Message: "not authorized to perform " + create, Status: http.StatusBadRequest}
			cloud.FailNext(create, 1, denied)
			_, err := s.Create(t.Context(), "x", []byte("v"))
			if n := len(cloud.Calls(create)); err == nil || errors.Is(err, object.ErrUnknown) || n != 1 ||
				!strings.Contains(err.Error(), "AccessDeniedException: not authorized to perform "+create) {
				t.Errorf("%s: %v after %d calls", provider, err, n)
			}
			cloud.FailNext(get, 1, denied)
			if _, err := s.Get(t.Context(), "x"); err == nil || errors.Is(err, secrets.ErrNotFound) || errors.Is(err, object.ErrUnknown) {
				t.Errorf("%s: %v", provider, err)
			}
		})
	}
}

// TestPassing: temporary errors are retried by a write, and may be retried after a read,
// although nothing was done.
func TestPassing(t *testing.T) {
	for provider := range limits() {
		create, replace, get := actions(provider)
		for _, code := range []string{"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TooManyUpdates", "ThrottlingException"} {
			synctest.Test(t, func(t *testing.T) {
				cloud := newCloud(t, nil)
				s := must(t, awsclienttest.Serve(t, cloud, region), provider, 1)
				fault := awstest.Fault{Code: code, Status: http.StatusBadRequest}
				cloud.FailNext(create, 3, fault)
				if created, err := s.Create(t.Context(), "x", []byte("v")); err != nil || !created {
					t.Errorf("%s, %s: create: %t, %v", provider, code, created, err)
				}
				cloud.FailNext(replace, 3, fault)
				if err := s.Replace(t.Context(), "x", []byte("w")); err != nil {
					t.Errorf("%s, %s: replace: %v", provider, code, err)
				}
				cloud.FailNext(get, 10, fault)
				if _, err := s.Get(t.Context(), "x"); !errors.Is(err, object.ErrUnknown) {
					t.Errorf("%s, %s: get: %v, want one that is worth a retry", provider, code, err)
				}
			})
		}
	}
}

// TestNoCredentials: temporarily missing credentials are not a refusal.
func TestNoCredentials(t *testing.T) {
	for provider := range limits() {
		synctest.Test(t, func(t *testing.T) {
			c := awsclienttest.Serve(t, newCloud(t, nil), region)
			keys := &awsclienttest.Late{CredentialsProvider: c.Credentials, Err: errNoRole}
			c.Credentials = keys
			s := must(t, c, provider, 1)
			keys.Missing.Store(1)
			if _, err := s.Get(t.Context(), "x"); !errors.Is(err, object.ErrUnknown) || !errors.Is(err, errNoRole) {
				t.Errorf("%s: get: %v, want one that is worth a retry", provider, err)
			}
			keys.Missing.Store(3)
			if created, err := s.Create(t.Context(), "x", []byte("v")); err != nil || !created {
				t.Errorf("%s: create: %t, %v", provider, created, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			keys.Missing.Store(1000)
			if err := s.Replace(ctx, "x", []byte("w")); !errors.Is(err, object.ErrUnknown) || !errors.Is(err, errNoRole) {
				t.Errorf("%s: replace: %v, want one that is worth a retry", provider, err)
			}
		})
	}
}

// TestDoubt: after a lost response a refusal is not definite, because the value may be stored.
// A call without effect leaves no doubt.
func TestDoubt(t *testing.T) {
	for provider := range limits() {
		create, replace, _ := actions(provider)
		for _, first := range []awstest.Fault{{Lost: true}, {Code: "ThrottlingException", Status: http.StatusBadRequest}} {
			synctest.Test(t, func(t *testing.T) {
				cloud := newCloud(t, nil)
				s := must(t, awsclienttest.Serve(t, cloud, region), provider, 1)
				cloud.Secrets.Put(prefix+"old", "v")
				for _, w := range []struct {
					action string
					write  func() error
				}{
					{create, func() error { _, err := s.Create(t.Context(), "new", []byte("v")); return err }},
					{replace, func() error { return s.Replace(t.Context(), "old", []byte("w")) }},
				} {
					cloud.FailNext(w.action, 1, first)
					cloud.FailNext(w.action, 1, awstest.Fault{Code: "AccessDeniedException", Status: http.StatusBadRequest})
					err := w.write()
					if err == nil || !strings.Contains(err.Error(), "AccessDeniedException") || errors.Is(err, object.ErrUnknown) != first.Lost {
						t.Errorf("%s of %s, %+v before: %v", w.action, provider, first, err)
					}
				}
			})
		}
	}
}

// TestKeys: a key is read by name or ARN, and an ARN's region is used.
func TestKeys(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	synctest.Test(t, func(t *testing.T) {
		cloud := newCloud(t, func(cfg *awstest.Config) { cfg.Policies = nil }) // keys of any name
		c := awsclienttest.Serve(t, cloud, region)
		cloud.Secrets.Put("key", key)
		cloud.Parameters.Put("/key", key)
		c.Region = "us-east-1" // the cloud is in another region
		arns := map[string]string{
			secrets.ProviderSecretsManager: cloud.Secrets.Put("other", key),
			secrets.ProviderParameterStore: "arn:aws:ssm:" + region + ":123456789012:parameter/key",
		}
		for provider, arn := range arns {
			load := func(name string) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := secrets.LoadKey(ctx, secrets.KeySource{Provider: provider, Source: name}, aws.Sources(c))
				return err
			}
			if err := load(arn); err != nil {
				t.Errorf("%s: %v", arn, err)
			}
			name := map[string]string{secrets.ProviderSecretsManager: "key", secrets.ProviderParameterStore: "/key"}[provider]
			if err := load(name); !errors.Is(err, secrets.ErrKey) || !strings.Contains(err.Error(), "InvalidSignatureException") {
				t.Errorf("%s in another region: %v", name, err)
			}
			c.Region = region
			if err := load(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := load("/none"); !errors.Is(err, secrets.ErrKey) || !strings.Contains(err.Error(), "not found") {
				t.Errorf("one that is not there: %v", err)
			}
			c.Region = "us-east-1"
		}
		cloud.Secrets.Put("short", "0123")
		c.Region = region
		_, err := secrets.LoadKey(t.Context(), secrets.KeySource{Provider: secrets.ProviderSecretsManager, Source: "short"}, aws.Sources(c))
		if !errors.Is(err, secrets.ErrKey) || !strings.Contains(err.Error(), "4 bytes, want exactly 32") {
			t.Errorf("a short key: %v", err)
		}
	})
}

// FuzzParameter: any text of a parameter is a value or does not decrypt.
func FuzzParameter(f *testing.F) {
	for _, text := range []string{"", "dg==", "dg== 0123", "dg==\n", "x", "dg dg", " "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cloud := newCloud(t, nil)
		if !cloud.Parameters.Put("/"+prefix+"x", text) {
			t.Skip("no parameter's text")
		}
		c := awsclienttest.Serve(t, cloud, region)
		if _, err := must(t, c, secrets.ProviderParameterStore, 1).Get(t.Context(), "x"); err != nil && !errors.Is(err, secrets.ErrSealed) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
