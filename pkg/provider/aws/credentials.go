package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/nstance/nstance/pkg/provider"
)

// This file is where the region and the credentials come from: the environment, the
// container, or the role of the machine. The SDK's own module for it also reads what
// people have in their home, and signs them on: that is 1.6 MB more in a server, which
// has neither.

// Where the credentials of containers are: those of ECS, and those of EKS by IPv6.
const (
	containerHost = "http://169.254.170.2"
	containerIPv6 = "fd00:ec2::23"
)

// findRegion returns the region: that of the options, of the environment, or the one
// that the machine is in.
func (cfg Config) findRegion(ctx context.Context) (string, error) {
	for _, region := range []string{cfg.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")} {
		if region != "" {
			return region, nil
		}
	}
	here, err := imds.New(imds.Options{}).GetRegion(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("options.region: required where AWS_REGION is not set and the machine does not tell it: %w", err)
	}
	return here.Region, nil
}

// findEndpoint returns the URL of EC2; empty: the region's own.
func (cfg Config) findEndpoint() string {
	for _, endpoint := range []string{cfg.Endpoint, os.Getenv("AWS_ENDPOINT_URL_EC2"), os.Getenv("AWS_ENDPOINT_URL")} {
		if endpoint != "" {
			return endpoint
		}
	}
	return ""
}

// findCredentials returns where credentials come from. They are asked for with the
// first call, and again before they expire.
func (cfg Config) findCredentials() (sdk.CredentialsProvider, error) {
	if cfg.Credentials != nil {
		return marked{cfg.Credentials}, nil
	}
	if id := os.Getenv("AWS_ACCESS_KEY_ID"); id != "" {
		return marked{static(sdk.Credentials{
			AccessKeyID: id, SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
			Source: "environment",
		})}, nil
	}
	at, err := container()
	if err != nil {
		return nil, err
	}
	if at != "" {
		return marked{sdk.NewCredentialsCache(endpointcreds.New(at, func(o *endpointcreds.Options) {
			o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(containerToken)
		}))}, nil
	}
	return marked{sdk.NewCredentialsCache(ec2rolecreds.New())}, nil
}

// static are credentials that don't change.
func static(c sdk.Credentials) sdk.CredentialsProvider {
	return sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) {
		if c.SecretAccessKey == "" {
			return c, errors.New("AWS_SECRET_ACCESS_KEY is empty: want the secret of AWS_ACCESS_KEY_ID")
		}
		return c, nil
	})
}

// container returns the URL that has the credentials of a container; empty: there is none.
func container() (string, error) {
	if path := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		return containerHost + path, nil
	}
	const variable = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	text := os.Getenv(variable)
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", provider.ErrInvalid, variable, err)
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if near := err == nil && (addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.String() == containerIPv6); u.Scheme != "https" && !near {
		return "", fmt.Errorf("%w: %s is %.200q: want https, or an address of this machine", provider.ErrInvalid, variable, text)
	}
	return text, nil
}

// containerToken returns what a container shows to get its credentials.
func containerToken() (string, error) {
	file := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	if file == "" {
		return os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"), nil
	}
	token, err := os.ReadFile(file)
	return strings.TrimSpace(string(token)), err
}

// marked marks the errors of credentials that can't be had: nothing was sent then.
type marked struct{ sdk.CredentialsProvider }

// credentialsError says that there are no credentials to sign a call with.
type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

// Retrieve implements sdk.CredentialsProvider.
func (m marked) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	found, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return found, credentialsError{err}
	}
	return found, nil
}
