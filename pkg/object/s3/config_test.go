package s3_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object/s3"
)

func TestFromEnv(t *testing.T) {
	env := map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "token",
		"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "us-west-2",
		"AWS_ENDPOINT_URL_S3": "http://s3:9000", "AWS_ENDPOINT_URL": "http://all:9000", "AWS_S3_USE_PATH_STYLE": "true",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1338", "NSTANCE_S3_SSE": "aws:kms",
		"AWS_ENDPOINT_URL_STS": "http://sts", "NSTANCE_INSECURE_STORAGE": "true",
	}
	get := func(name string) string { return env[name] }
	want := s3.Config{
		Bucket: "bucket", Endpoint: "http://s3:9000", Region: "eu-central-1", PathStyle: true,
		AccessKeyID: "id", SecretAccessKey: "key", SessionToken: "token",
		Metadata: "http://127.0.0.1:1338", Encryption: "aws:kms", TokenService: "http://sts",
		Insecure: true,
	}
	if got, err := s3.FromEnv("bucket", get); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	delete(env, "AWS_ENDPOINT_URL_S3")
	delete(env, "AWS_REGION")
	want.Endpoint, want.Region = "http://all:9000", "us-west-2"
	if got, err := s3.FromEnv("bucket", get); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	env["NSTANCE_INSECURE_STORAGE"] = "perhaps"
	if _, err := s3.FromEnv("bucket", get); err == nil || !strings.Contains(err.Error(), `NSTANCE_INSECURE_STORAGE: "perhaps" is not valid`) {
		t.Errorf("insecure perhaps: %v", err)
	}
	env["AWS_S3_USE_PATH_STYLE"] = "maybe"
	if _, err := s3.FromEnv("bucket", get); err == nil || !strings.Contains(err.Error(), `AWS_S3_USE_PATH_STYLE: "maybe" is not valid`) {
		t.Errorf("path style maybe: %v", err)
	}
}

func TestValidate(t *testing.T) {
	good := s3.Config{Bucket: "bucket", Region: "eu-central-1", AccessKeyID: "id", SecretAccessKey: "key"}
	for name, c := range map[string]struct {
		change func(*s3.Config)
		want   string // empty: valid
	}{
		"aws":              {func(*s3.Config) {}, ""},
		"own endpoint":     {func(c *s3.Config) { c.Endpoint, c.Region = "http://127.0.0.1:8989", "" }, ""},
		"trailing slash":   {func(c *s3.Config) { c.Endpoint = "https://s3.example.com/" }, ""},
		"credential chain": {func(c *s3.Config) { c.AccessKeyID, c.SecretAccessKey = "", "" }, ""},
		"no bucket":        {func(c *s3.Config) { c.Bucket = "" }, "bucket"},
		"bad bucket":       {func(c *s3.Config) { c.Bucket = "A_b" }, `bucket "A_b"`},
		"no region":        {func(c *s3.Config) { c.Region = "" }, "AWS_REGION"},
		"plain":            {func(c *s3.Config) { c.Endpoint = "http://minio:9000" }, `AWS_ENDPOINT_URL) is "http://minio:9000"`},
		"plain, allowed":   {func(c *s3.Config) { c.Endpoint, c.Insecure = "http://minio:9000", true }, ""},
		"plain, a number":  {func(c *s3.Config) { c.Endpoint = "http://10.0.0.1:9000" }, "NSTANCE_INSECURE_STORAGE=true"},
		"plain, any":       {func(c *s3.Config) { c.Endpoint = "http://0.0.0.0:9000" }, "NSTANCE_INSECURE_STORAGE=true"},
		"plain, capitals":  {func(c *s3.Config) { c.Endpoint = "HTTP://minio:9000" }, "NSTANCE_INSECURE_STORAGE=true"},
		"plain, as a name": {func(c *s3.Config) { c.Endpoint = "http://localhost.example.com" }, "NSTANCE_INSECURE_STORAGE=true"},
		"plain, here":      {func(c *s3.Config) { c.Endpoint = "http://localhost:9000" }, ""},
		"plain, here too":  {func(c *s3.Config) { c.Endpoint = "http://[::1]:9000" }, ""},
		"plain, mapped":    {func(c *s3.Config) { c.Endpoint = "http://[::ffff:127.0.0.9]:9000" }, ""},
		"plain tokens":     {func(c *s3.Config) { c.TokenService = "http://sts" }, "(AWS_ENDPOINT_URL_STS)"},
		"sovereign cloud":  {func(c *s3.Config) { c.Region = "eusc-de-east-1" }, ""},
		"no such region":   {func(c *s3.Config) { c.Region = "moon-base-1" }, `region "moon-base-1"`},
		"and an endpoint":  {func(c *s3.Config) { c.Region, c.Endpoint = "moon-base-1", "https://s3.moon" }, ""},
		"FIPS":             {func(c *s3.Config) { c.FIPS, c.Region = true, "us-gov-west-1" }, ""},
		"FIPS in China":    {func(c *s3.Config) { c.FIPS, c.Region = true, "cn-north-1" }, "AWS_USE_FIPS_ENDPOINT"},
		"host of numbers":  {func(c *s3.Config) { c.HostStyle, c.Endpoint = true, "http://127.0.0.1:9000" }, "is an address"},
		"no scheme":        {func(c *s3.Config) { c.Endpoint = "localhost:9000" }, "such as https://"},
		"ftp":              {func(c *s3.Config) { c.Endpoint = "ftp://x" }, "such as https://"},
		"path":             {func(c *s3.Config) { c.Endpoint = "https://x/bucket" }, "without path"},
		"not a url":        {func(c *s3.Config) { c.Endpoint = "http://[::1" }, "not a URL"},
		"half a key":       {func(c *s3.Config) { c.SecretAccessKey = "" }, "set both or none"},
		"encryption":       {func(c *s3.Config) { c.Encryption = "aws:kms:alias/ours" }, ""},
		"bad encryption":   {func(c *s3.Config) { c.Encryption = "aws:kms:" }, "want AES256, aws:kms, or"},
		"timeout":          {func(c *s3.Config) { c.RequestTimeout = -1 }, "want 0 or more"},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := s3.New(cfg); err != nil {
				t.Errorf("%s: new: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error that says %q", name, err, c.want)
		}
		if _, err := s3.New(cfg); err == nil {
			t.Errorf("%s: new accepts it", name)
		}
	}
	all := s3.Config{AccessKeyID: "id", Endpoint: "x"}.Validate()
	if all == nil || strings.Count(all.Error(), "\n") != 2 {
		t.Errorf("three problems are reported as %v", all)
	}
}

// FuzzEndpoint: an accepted endpoint has a host, and an error never has a password.
func FuzzEndpoint(f *testing.F) {
	for _, e := range []string{
		"", "http://a", "https://a:9000/", "http://u:hunter2@a", "a:1", "http://[::1]:9000", "http://a/%2e%2e", "http:///",
		"http://u:hunter2@[", "//a",
	} {
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		_, err := s3.New(s3.Config{Bucket: "bucket", Region: "eu-central-1", Endpoint: endpoint, AccessKeyID: "id", SecretAccessKey: "key"})
		if err != nil {
			if strings.Contains(endpoint, ":hunter2@") && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the refusal tells the password: %v", err)
			}
			return
		}
		if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Hostname() == "" || u.User != nil) {
			t.Errorf("accepted %q", endpoint)
		}
	})
}
