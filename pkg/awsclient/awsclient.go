// Package awsclient is how this project calls AWS, whatever the service: in which
// region, at which URL, in whose name, and with how many attempts. It knows no service;
// whoever calls one makes the SDK's client for it of a Session.
package awsclient

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// Config says what differs from what the environment and the machine say.
type Config struct {
	Region string // empty: AWS_REGION, AWS_DEFAULT_REGION, or where the machine is
	// Credentials are those of the calls; nil: those of the environment, of the
	// container, or of the machine's role.
	Credentials CredentialsProvider
	HTTPClient  *http.Client // nil: the SDK's own

	// Metadata is the URL of the metadata service; empty: AWS_EC2_METADATA_SERVICE_ENDPOINT,
	// or that of EC2.
	Metadata string
	// Local asks what is on this machine: the metadata service, and what has the
	// credentials of a container; nil: the SDK's own.
	Local *http.Client

	// Getenv has the region, the URLs of services and which of their hosts are called; nil:
	// os.Getenv. Where keys are is always said by the environment itself.
	Getenv func(string) string
}

// Session is what the clients of all services have in common. It is safe for concurrent
// use.
type Session struct {
	Hosts
	Credentials sdk.CredentialsProvider
	HTTPClient  HTTPClient
	Getenv      func(string) string // nil: os.Getenv
	from        string              // what says the region; empty: it is not known
}

// Open finds out the region, and where credentials come from. It asks the machine for
// the region if nothing else says it, and calls no service.
func (c Config) Open(ctx context.Context) (Session, error) {
	s := Session{HTTPClient: newTransport(c.HTTPClient), Getenv: c.Getenv}
	var err error
	if s.Region, s.from, err = c.region(ctx); err != nil {
		return Session{}, err
	}
	if s.Credentials, err = c.credentials(); err != nil {
		return Session{}, err
	}
	if s.DualStack, _, err = DualStack(lookup(c.Getenv)); err != nil {
		return Session{}, err
	}
	if s.FIPS, err = FIPS(lookup(c.Getenv)); err != nil {
		return Session{}, err
	}
	return s, nil
}

func lookup(getenv func(string) string) func(string) string {
	if getenv == nil {
		return os.Getenv
	}
	return getenv
}

// URL returns where a service is, without a slash at the end: as the environment says,
// whatever the region is, or else where the region has it.
func (s Session) URL(of Service) (string, error) {
	for _, variable := range []string{of.variable(), endpointVariable} {
		if url := lookup(s.Getenv)(variable); url != "" {
			return strings.TrimSuffix(url, "/"), nil
		}
	}
	url, err := s.Hosts.URL(of)
	if err != nil {
		return "", fmt.Errorf("%s %w", cmp.Or(s.from, "region"), err)
	}
	return url, nil
}

// Forget has credentials be asked for anew that a service says have expired, if id is
// that of those which are kept, or empty. Credentials that don't change are not forgotten.
func (s Session) Forget(id string) {
	if keeper, ok := s.Credentials.(interface{ Forget(id string) }); ok {
		keeper.Forget(id)
	}
}

// ConfiguredRegion returns the region that is configured, and by what: region, or a
// variable's name. It is empty where the machine is to be asked.
func (c Config) ConfiguredRegion() (region, by string) {
	if c.Region != "" {
		return c.Region, "region"
	}
	for _, variable := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if region := lookup(c.Getenv)(variable); region != "" {
			return region, variable
		}
	}
	return "", ""
}

// region returns the region, and what says it.
func (c Config) region(ctx context.Context) (region, from string, err error) {
	if region, from = c.ConfiguredRegion(); region != "" {
		return region, from, nil
	}
	here, err := c.metadata().GetRegion(ctx, nil)
	if err != nil {
		return "", "", fmt.Errorf("find out the region: AWS_REGION is not set, and the machine does not tell it: %w", err)
	}
	return here.Region, "the machine's region", nil
}
