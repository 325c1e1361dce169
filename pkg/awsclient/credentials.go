package awsclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
)

// This file resolves credentials: from the environment, the container, or the machine's role.
// The SDK's own module for that also reads home directories and supports SSO, which adds 2 MB
// to a server that needs neither. nstance-admin uses it, in pkg/admin/profile.
//
// The S3 client uses these credentials too, unless a file or a web identity is configured.

// Container credential endpoints: ECS, and EKS over IPv6.
const (
	containerHost = "http://169.254.170.2"
	containerIPv6 = "fd00:ec2::23"
)

// containerTime is the timeout of a container credentials request; the endpoint is on the same
// machine.
const containerTime = 5 * time.Second

// Variables that configure credentials.
const (
	webIdentity       = "AWS_WEB_IDENTITY_TOKEN_FILE"
	containerRelative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
	containerFull     = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
)

// WebIdentity reports whether the environment has a web identity and nothing that takes
// precedence over it. Open then fails, rather than fall back to the machine's role, which may
// have more or fewer rights.
func WebIdentity() bool {
	return os.Getenv(webIdentity) != "" && os.Getenv("AWS_ACCESS_KEY_ID") == "" &&
		os.Getenv(containerRelative) == "" && os.Getenv(containerFull) == ""
}

// credentials returns the credentials provider. Credentials are fetched at the first call, and
// again before they expire.
func (c Config) credentials() (sdk.CredentialsProvider, error) {
	if c.Credentials != nil {
		return marked{c.Credentials}, nil
	}
	ask, err := c.Ask()
	if err != nil {
		return nil, err
	}
	return marked{Keep(ask)}, nil
}

// Ask returns an uncached source of credentials: environment, container or machine. See Keep.
func (c Config) Ask() (func(context.Context) (Keys, error), error) {
	if id := os.Getenv("AWS_ACCESS_KEY_ID"); id != "" {
		return static(Keys{
			AccessKeyID: id, SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
			Source: "environment",
		}), nil
	}
	at, err := container()
	if err != nil {
		return nil, err
	}
	if at != "" {
		return endpointcreds.New(at, func(o *endpointcreds.Options) {
			o.HTTPClient = direct().WithTimeout(containerTime)
			if c.Local != nil {
				o.HTTPClient = &http.Client{Transport: c.Local.Transport, Timeout: containerTime}
			}
			o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(containerToken)
		}).Retrieve, nil
	}
	if WebIdentity() {
		return nil, errors.New(webIdentity + " is set, but web identities are supported for S3 only: use EKS Pod Identity, " +
			"set AWS_ACCESS_KEY_ID, or unset it to use the machine's role")
	}
	return roleKeys(c.metadata()), nil
}

// static returns a source of fixed credentials.
func static(keys Keys) func(context.Context) (Keys, error) {
	return func(context.Context) (Keys, error) {
		if keys.SecretAccessKey == "" {
			return keys, errors.New("AWS_SECRET_ACCESS_KEY is empty: required with AWS_ACCESS_KEY_ID")
		}
		return keys, nil
	}
}

// container returns the URL of the container credentials endpoint; empty: none.
func container() (string, error) {
	if path := os.Getenv(containerRelative); path != "" {
		return containerHost + path, nil
	}
	text := os.Getenv(containerFull)
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", containerFull, err)
	}
	if u.Scheme != "https" && !nearby(u.Hostname()) {
		return "", fmt.Errorf("%s is %.200q: want https, or a local address", containerFull, text)
	}
	return text, nil
}

// containerToken returns the authorization token for the container credentials endpoint.
func containerToken() (string, error) {
	file := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	if file == "" {
		return os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"), nil
	}
	token, err := os.ReadFile(file)
	return strings.TrimSpace(string(token)), err
}

// marked turns errors into CredentialsError: no request was sent.
type marked struct{ sdk.CredentialsProvider }

// signTime bounds how long a call waits for credentials.
const signTime = 10 * time.Second

// Retrieve implements sdk.CredentialsProvider.
func (m marked) Retrieve(ctx context.Context) (sdk.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	found, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return found, CredentialsError{err}
	}
	return found, nil
}

// Forget forwards to the cached provider, if it keeps the credentials with this ID.
func (m marked) Forget(id string) {
	if k, ok := m.CredentialsProvider.(*Keeper); ok {
		k.Forget(id)
	}
}
