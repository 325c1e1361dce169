// Package awsclient is how this project calls AWS, whatever the service: in which
// region, at which URL, in whose name, and with how many attempts. It knows no service;
// whoever calls one makes the SDK's client for it of a Session.
package awsclient

import (
	"context"
	"fmt"
	"net/http"
	"os"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
)

// Service is what the variable that says another URL for one service ends with, as
// AWS's own tools name it: AWS_ENDPOINT_URL_EC2.
type Service string

// The services that are called.
const (
	EC2              Service = "EC2"
	LoadBalancing    Service = "ELASTIC_LOAD_BALANCING_V2"
	AutoScaling      Service = "AUTO_SCALING"
	SecretsManager   Service = "SECRETS_MANAGER"
	ParameterStore   Service = "SSM"
	endpointVariable         = "AWS_ENDPOINT_URL"
)

// Config says what differs from what the environment and the machine say.
type Config struct {
	Region string // empty: AWS_REGION, AWS_DEFAULT_REGION, or where the machine is
	// Credentials are those of the calls; nil: those of the environment, of the
	// container, or of the machine's role.
	Credentials sdk.CredentialsProvider
	HTTPClient  *http.Client // nil: the SDK's own

	// Metadata is the URL of the metadata service; empty: AWS_EC2_METADATA_SERVICE_ENDPOINT,
	// or that of EC2.
	Metadata string
	// Local asks what is on this machine: the metadata service, and what has the
	// credentials of a container; nil: the SDK's own.
	Local *http.Client
}

// Session is what the clients of all services have in common. It is safe for concurrent
// use.
type Session struct {
	Region      string
	Credentials sdk.CredentialsProvider
	HTTPClient  HTTPClient
	DualStack   bool // hosts that have addresses of IPv6 too
}

// Open finds out the region, and where credentials come from. It asks the machine for
// the region if nothing else says it, and calls no service.
func (c Config) Open(ctx context.Context) (Session, error) {
	region, err := c.region(ctx)
	if err != nil {
		return Session{}, err
	}
	keys, err := c.credentials()
	if err != nil {
		return Session{}, err
	}
	dual, _, err := DualStack(os.Getenv)
	if err != nil {
		return Session{}, err
	}
	return Session{Region: region, Credentials: keys, HTTPClient: newTransport(c.HTTPClient), DualStack: dual}, nil
}

// Endpoint returns the URL of a service that the environment names, nil if it is the
// region's own.
func (s Session) Endpoint(of Service) *string {
	for _, variable := range []string{endpointVariable + "_" + string(of), endpointVariable} {
		if url := os.Getenv(variable); url != "" {
			return &url
		}
	}
	return nil
}

// Forget has credentials be asked for anew that a service says have expired, if id is
// that of those which are kept, or empty. Credentials that don't change are not forgotten.
func (s Session) Forget(id string) {
	if keeper, ok := s.Credentials.(interface{ Forget(id string) }); ok {
		keeper.Forget(id)
	}
}

func (c Config) region(ctx context.Context) (string, error) {
	for _, region := range []string{c.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")} {
		if region != "" {
			return region, nil
		}
	}
	here, err := c.metadata().GetRegion(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("find out the region: AWS_REGION is not set, and the machine does not tell it: %w", err)
	}
	return here.Region, nil
}
