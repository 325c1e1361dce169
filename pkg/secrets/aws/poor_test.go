package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/awsclient/awsclienttest"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/nstance/nstance/pkg/secrets/aws"
)

// TestPoorReplies: an incomplete success is not one: no secret is empty, and nothing was
// created.
func TestPoorReplies(t *testing.T) {
	for provider := range limits() {
		for _, body := range []string{"{}", "null", `{"ok":true}`, `{"ARN":"arn:x"}`, `{"Parameter":{}}`} {
			synctest.Test(t, func(t *testing.T) {
				c := awsclienttest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }), region)
				s := must(t, c, provider, 1)
				if value, err := s.Get(t.Context(), "x"); !errors.Is(err, object.ErrUnknown) {
					t.Errorf("%s, %s: get: %q, %v", provider, body, value, err)
				}
				if value, err := aws.Sources(c)[provider](t.Context(), "x"); err == nil {
					t.Errorf("%s, %s: a key is %q", provider, body, value)
				}
				if provider == secrets.ProviderSecretsManager && body == `{"ARN":"arn:x"}` {
					return // for a write it is a success
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if created, err := s.Create(ctx, "x", []byte("v")); created || !errors.Is(err, object.ErrUnknown) {
					t.Errorf("%s, %s: created: %t, %v", provider, body, created, err)
				}
			})
		}
	}
}

// TestEncrypted: a parameter is stored encrypted, also after it was replaced.
func TestEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := newCloud(t, nil)
		s := must(t, awsclienttest.Serve(t, cloud, region), secrets.ProviderParameterStore, 1)
		if _, err := s.Create(t.Context(), "x", []byte("v")); err != nil {
			t.Fatal(err)
		}
		if kind := cloud.Parameters.Kind("/" + prefix + "x"); kind != "SecureString" {
			t.Errorf("what was created is a %q", kind)
		}
		if err := s.Replace(t.Context(), "x", []byte("w")); err != nil {
			t.Fatal(err)
		}
		if kind := cloud.Parameters.Kind("/" + prefix + "x"); kind != "SecureString" {
			t.Errorf("what was replaced is a %q", kind)
		}
	})
}
