package s3_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object/s3"
)

// TestWebIdentityHosts: a web identity is sent only to the region's own service, in every
// partition, and nowhere in an unknown region.
func TestWebIdentityHosts(t *testing.T) {
	noKeys(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("who I am"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/pod")
	type env = map[string]string
	seen, before := &target{}, http.DefaultTransport
	http.DefaultTransport = seen
	t.Cleanup(func() { http.DefaultTransport = before })
	for name, c := range map[string]struct {
		env  env
		want string
	}{
		"default":         {env{"AWS_REGION": "eu-central-1"}, "https://sts.eu-central-1.amazonaws.com"},
		"new region":      {env{"AWS_REGION": "eu-north-9"}, "https://sts.eu-north-9.amazonaws.com"},
		"sovereign cloud": {env{"AWS_REGION": "eusc-de-east-1"}, "https://sts.eusc-de-east-1.amazonaws.eu"},
		"China":           {env{"AWS_REGION": "cn-north-1"}, "https://sts.cn-north-1.amazonaws.com.cn"},
		"GovCloud":        {env{"AWS_REGION": "us-gov-west-1"}, "https://sts.us-gov-west-1.amazonaws.com"},
		"secret":          {env{"AWS_REGION": "us-iso-east-1"}, "https://sts.us-iso-east-1.c2s.ic.gov"},
		"dual stack":      {env{"AWS_REGION": "eu-central-1", "AWS_USE_DUALSTACK_ENDPOINT": "true"}, "https://sts.eu-central-1.api.aws"},
		"FIPS":            {env{"AWS_REGION": "us-east-1", "AWS_USE_FIPS_ENDPOINT": "true"}, "https://sts-fips.us-east-1.amazonaws.com"},
		"own store":       {env{"AWS_ENDPOINT_URL": "https://s3.example.com"}, "https://sts.amazonaws.com"},
		"own both":        {env{"AWS_ENDPOINT_URL": "https://s3.test", "AWS_ENDPOINT_URL_STS": "https://sts.test"}, "https://sts.test"},
		"own region":      {env{"AWS_ENDPOINT_URL": "https://s3.example.com", "AWS_REGION": "garage"}, `AWS_REGION) "garage"`},
	} {
		t.Setenv("AWS_REGION", c.env["AWS_REGION"]) // the client reads it itself
		seen.url = ""
		cfg, err := s3.FromEnv("bucket", func(name string) string { return c.env[name] })
		if err != nil {
			t.Fatal(err)
		}
		store, err := s3.New(cfg)
		if refused := !strings.HasPrefix(c.want, "https:"); refused {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL_STS") {
				t.Errorf("%s: %v, want an error that says %s", name, err, c.want)
			}
			continue
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := store.Delete(t.Context(), "k"); err == nil || strings.TrimSuffix(seen.url, "/") != c.want {
			t.Errorf("%s: asked %q, %v; want %s", name, seen.url, err, c.want)
		}
	}
}
