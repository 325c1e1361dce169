// Package awsclient configures how this project calls AWS, for all services: region, URLs,
// credentials and retries. It knows no service; callers create SDK clients from a Session.
package awsclient

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/nstance/nstance/pkg/env"
)

// Config overrides the settings of the environment and the machine.
type Config struct {
	Region string // empty: AWS_REGION, AWS_DEFAULT_REGION, or the machine's region
	// Credentials sign the calls; nil: those of the environment, the container, or the
	// machine's role.
	Credentials CredentialsProvider
	HTTPClient  *http.Client // nil: the SDK's default

	// Metadata is the URL of the metadata service; empty: AWS_EC2_METADATA_SERVICE_ENDPOINT, or
	// EC2's.
	Metadata string
	// Local calls services on this machine: the metadata service and the container credentials
	// endpoint; nil: the SDK's default.
	Local *http.Client

	// Getenv returns the region, service URLs and host settings; nil: os.Getenv. Credentials
	// always come from the process environment.
	Getenv func(string) string
}

// Session is the configuration shared by the clients of all services. It is safe for concurrent
// use.
type Session struct {
	Hosts
	Credentials sdk.CredentialsProvider
	HTTPClient  HTTPClient
	Getenv      func(string) string // nil: os.Getenv
	from        string              // source of the region; empty: unknown
}

// Open resolves the region and the source of credentials. It queries the metadata service if
// the region is not configured, and calls no AWS API.
func (c Config) Open(ctx context.Context) (Session, error) {
	s := Session{HTTPClient: newTransport(c.HTTPClient), Getenv: c.Getenv}
	var err error
	if s.Region, s.from, err = c.region(ctx); err != nil {
		return Session{}, err
	}
	if s.Credentials, err = c.credentials(); err != nil {
		return Session{}, err
	}
	in := reader(c.Getenv)
	s.DualStack, s.FIPS = in.Bool(DualStackVariable), in.Bool(FIPSVariable)
	return s, in.Err()
}

// reader returns a Reader over getenv; nil: os.Getenv.
func reader(getenv func(string) string) *env.Reader {
	if getenv == nil {
		getenv = os.Getenv
	}
	return &env.Reader{Getenv: getenv}
}

// URL returns the URL of a service, without a trailing slash: the environment's, or else that
// of the region.
func (s Session) URL(of Service) (string, error) {
	if url, variable := reader(s.Getenv).First(of.variable(), endpointVariable); url != "" {
		return strings.TrimSuffix(url, "/"), CheckPlainUnlessAllowed(s.Getenv, variable, url)
	}
	url, err := s.Hosts.URL(of)
	if err != nil {
		return "", fmt.Errorf("%s %w", cmp.Or(s.from, "region"), err)
	}
	return url, nil
}

// Forget makes expired credentials be fetched again, if id is that of the cached ones, or
// empty. It does nothing for static credentials.
func (s Session) Forget(id string) {
	if keeper, ok := s.Credentials.(interface{ Forget(id string) }); ok {
		keeper.Forget(id)
	}
}

// ConfiguredRegion returns the configured region and its source: "region", or a variable's
// name. It is empty if the machine's region applies.
func (c Config) ConfiguredRegion() (region, by string) {
	if c.Region != "" {
		return c.Region, "region"
	}
	return reader(c.Getenv).First("AWS_REGION", "AWS_DEFAULT_REGION")
}

// region returns the region and its source.
func (c Config) region(ctx context.Context) (region, from string, err error) {
	if region, from = c.ConfiguredRegion(); region != "" {
		return region, from, nil
	}
	here, err := c.metadata().GetRegion(ctx, nil)
	if err != nil {
		return "", "", fmt.Errorf("find the region: AWS_REGION is not set, and the metadata service did not return one: %w", err)
	}
	return here.Region, "the machine's region", nil
}
