package awsclient

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
)

// This file is where credentials come from: the environment, the container, or the role
// of the machine. The SDK's own module for it also reads what people have in their home,
// and signs them on: that is 1.6 MB more in a server, which has neither.

// Where the credentials of containers are: those of ECS, and those of EKS by IPv6.
const (
	containerHost = "http://169.254.170.2"
	containerIPv6 = "fd00:ec2::23"
)

// credentials returns where credentials come from. They are asked for with the
// first call, and again before they expire.
func (c Config) credentials() (sdk.CredentialsProvider, error) {
	if c.Credentials != nil {
		return marked{c.Credentials}, nil
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
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if near := err == nil && (addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.String() == containerIPv6); u.Scheme != "https" && !near {
		return "", fmt.Errorf("%s is %.200q: want https, or an address of this machine", variable, text)
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

// Retrieve implements sdk.CredentialsProvider.
func (m marked) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	found, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return found, CredentialsError{err}
	}
	return found, nil
}
