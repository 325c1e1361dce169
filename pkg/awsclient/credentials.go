package awsclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
)

// This file is where credentials come from: the environment, the container, or the role
// of the machine. The SDK's own module for it also reads what people have in their home,
// and signs them on: that is 2 MB more in a server, which has neither. nstance-admin has it,
// in pkg/admin/profile.
//
// S3 takes its own from here as well, unless a file or a web identity has them.

// Where the credentials of containers are: those of ECS, and those of EKS by IPv6.
const (
	containerHost = "http://169.254.170.2"
	containerIPv6 = "fd00:ec2::23"
)

// containerTime is how long the credentials of a container may take, once they are asked
// for: they come from the same machine.
const containerTime = 5 * time.Second

// The variables that say where credentials are.
const (
	webIdentity       = "AWS_WEB_IDENTITY_TOKEN_FILE"
	containerRelative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
	containerFull     = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
)

// WebIdentity reports whether the environment has a web identity, and nothing that
// comes before it. Open refuses it then: another identity in its place, which would be
// that of the machine, may have more rights or fewer.
func WebIdentity() bool {
	return os.Getenv(webIdentity) != "" && os.Getenv("AWS_ACCESS_KEY_ID") == "" &&
		os.Getenv(containerRelative) == "" && os.Getenv(containerFull) == ""
}

// credentials returns where credentials come from. They are asked for with the first
// call, and again before they expire.
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

// Ask returns what asks the environment, the container or the machine for credentials,
// each time anew: see Keep.
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
			o.HTTPClient = awshttp.NewBuildableClient().WithTimeout(containerTime)
			if c.Local != nil {
				o.HTTPClient = &http.Client{Transport: c.Local.Transport, Timeout: containerTime}
			}
			o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(containerToken)
		}).Retrieve, nil
	}
	if WebIdentity() {
		return nil, errors.New(webIdentity + " is set, and web identities are known for S3 only: give the pod its role with EKS Pod Identity, " +
			"or give keys (AWS_ACCESS_KEY_ID), or unset it to use the role of the machine")
	}
	return roleKeys(c.metadata()), nil
}

// static are credentials that don't change.
func static(keys Keys) func(context.Context) (Keys, error) {
	return func(context.Context) (Keys, error) {
		if keys.SecretAccessKey == "" {
			return keys, errors.New("AWS_SECRET_ACCESS_KEY is empty: want the secret of AWS_ACCESS_KEY_ID")
		}
		return keys, nil
	}
}

// container returns the URL that has the credentials of a container; empty: there is none.
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
	addr, err := netip.ParseAddr(u.Hostname())
	if near := err == nil && (addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.String() == containerIPv6); u.Scheme != "https" && !near {
		return "", fmt.Errorf("%s is %.200q: want https, or an address of this machine", containerFull, text)
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

// Forget has what keeps the credentials ask for others, if it keeps those by this id.
func (m marked) Forget(id string) {
	if k, ok := m.CredentialsProvider.(*Keeper); ok {
		k.Forget(id)
	}
}
