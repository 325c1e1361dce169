package s3_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object/s3"
)

// target records where a request goes, and refuses it permanently.
type target struct{ url string }

func (h *target) RoundTrip(r *http.Request) (*http.Response, error) {
	h.url = r.URL.String()
	return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// TestHosts: the hosts of requests by region, endpoint and environment. A region that the client
// does not know never maps to another one.
func TestHosts(t *testing.T) {
	type env = map[string]string
	for name, c := range map[string]struct {
		env    env
		bucket string
		want   string
	}{
		"default": {env{"AWS_REGION": "eu-central-1"}, "b-1", "https://b-1.s3.dualstack.eu-central-1.amazonaws.com/k"},
		"single stack": {
			env{"AWS_REGION": "eu-central-1", "AWS_USE_DUALSTACK_ENDPOINT": "false"}, "b-1",
			"https://b-1.s3.eu-central-1.amazonaws.com/k",
		},
		"new region":      {env{"AWS_REGION": "eu-north-9"}, "b-1", "https://b-1.s3.dualstack.eu-north-9.amazonaws.com/k"},
		"sovereign cloud": {env{"AWS_REGION": "eusc-de-east-1"}, "b-1", "https://b-1.s3.eusc-de-east-1.amazonaws.eu/k"},
		"and dual stack": {
			env{"AWS_REGION": "eusc-de-east-1", "AWS_USE_DUALSTACK_ENDPOINT": "true"}, "b-1",
			"https://b-1.s3.dualstack.eusc-de-east-1.amazonaws.eu/k",
		},
		"China": {env{"AWS_REGION": "cn-north-1"}, "b-1", "https://b-1.s3.dualstack.cn-north-1.amazonaws.com.cn/k"},
		"FIPS": {
			env{"AWS_REGION": "us-east-1", "AWS_USE_FIPS_ENDPOINT": "true"}, "b-1", "https://b-1.s3-fips.dualstack.us-east-1.amazonaws.com/k",
		},
		"FIPS, single stack": {
			env{"AWS_REGION": "us-gov-west-1", "AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "false"}, "b-1",
			"https://b-1.s3-fips.us-gov-west-1.amazonaws.com/k",
		},
		"FIPS, dots": {
			env{"AWS_REGION": "us-east-1", "AWS_USE_FIPS_ENDPOINT": "true"}, "b.c.d",
			"https://s3-fips.dualstack.us-east-1.amazonaws.com/b.c.d/k",
		},
		"FIPS, elsewhere": {
			env{"AWS_REGION": "eusc-de-east-1", "AWS_USE_FIPS_ENDPOINT": "true"}, "b-1", "https://b-1.s3-fips.eusc-de-east-1.amazonaws.eu/k",
		},
		"a secret region": {env{"AWS_REGION": "us-iso-east-1"}, "b-1", "https://b-1.s3.us-iso-east-1.c2s.ic.gov/k"},
		"GovCloud":        {env{"AWS_REGION": "us-gov-west-1"}, "b-1", "https://b-1.s3.dualstack.us-gov-west-1.amazonaws.com/k"},
		"path style": {
			env{"AWS_REGION": "eu-central-1", "AWS_S3_USE_PATH_STYLE": "true"}, "b-1",
			"https://s3.dualstack.eu-central-1.amazonaws.com/b-1/k",
		},
		"dots":         {env{"AWS_REGION": "eu-central-1"}, "b.c.d", "https://s3.dualstack.eu-central-1.amazonaws.com/b.c.d/k"},
		"dots, new":    {env{"AWS_REGION": "eu-north-9"}, "b.c.d", ""},
		"own, default": {env{"AWS_ENDPOINT_URL": "https://s3.example.com"}, "b-1", "https://s3.example.com/b-1/k"},
		"own, host style": {
			env{"AWS_ENDPOINT_URL": "https://s3.example.com", "AWS_S3_USE_PATH_STYLE": "false"}, "b-1", "https://b-1.s3.example.com/k",
		},
		"own, an address": {env{"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, "b-1", "http://127.0.0.1:9000/b-1/k"},
	} {
		cfg, err := s3.FromEnv(c.bucket, func(name string) string { return c.env[name] })
		if err != nil {
			t.Fatal(err)
		}
		seen := &target{}
		cfg.AccessKeyID, cfg.SecretAccessKey, cfg.Transport = "id", "key", seen
		store, err := s3.New(cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := store.Get(t.Context(), "k"); err == nil || seen.url != c.want {
			t.Errorf("%s: %q, %v; want %q", name, seen.url, err, c.want)
		}
		// A listing has a client of its own.
		seen.url = ""
		_, err = store.List(t.Context(), "k", "")
		at, _, _ := strings.Cut(seen.url, "?")
		if err == nil || strings.TrimSuffix(at, "/") != strings.TrimSuffix(strings.TrimSuffix(c.want, "k"), "/") {
			t.Errorf("%s: lists at %q, %v; want as %q", name, at, err, c.want)
		}
	}
	for _, variable := range []string{"AWS_USE_DUALSTACK_ENDPOINT", "AWS_USE_FIPS_ENDPOINT"} {
		if _, err := s3.FromEnv("b", func(name string) string { return map[string]string{variable: "maybe"}[name] }); err == nil ||
			!strings.Contains(err.Error(), variable+`: "maybe" is not valid`) {
			t.Errorf("%s=maybe: %v", variable, err)
		}
	}
}
