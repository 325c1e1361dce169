// Package profile resolves how an administrator calls AWS, as AWS's own tools do: by a profile
// of the files in the home directory, which may have keys, sign in with SSO, or assume a role.
// Only nstance-admin links it: servers have no home directory or user, and the SDK's module for
// it is large.
package profile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/smithy-go/middleware"

	"github.com/nstance/nstance/pkg/awsclient"
)

// standard is the profile used if none is named.
const standard = "default"

// Load returns the AWS settings of the profile that AWS_PROFILE names, or of the default
// profile: its keys and, where the environment has none, its region and host settings. Without
// a profile, for a profile without keys, or with keys in the environment, the credentials are
// nil and are found as on a server.
//
// Load fetches the keys before it returns, bounded by ctx, so that errors show up early. code
// prompts for an MFA device's code, which some roles require.
func Load(ctx context.Context, code func(device string) (string, error)) (awsclient.Config, error) {
	env, err := config.NewEnvConfig()
	if err != nil {
		return awsclient.Config{}, fmt.Errorf("read the AWS settings: %w", err)
	}
	name, files := cmp.Or(env.SharedConfigProfile, standard), filesOf(env)
	shared, err := config.LoadSharedConfigProfile(ctx, name, func(o *config.LoadSharedConfigOptions) {
		o.ConfigFiles, o.CredentialsFiles = files[:1], files[1:]
	})
	switch missing := new(config.SharedConfigProfileNotExistError); {
	case errors.As(err, missing) && missing.Profile == name && env.SharedConfigProfile == "":
		return awsclient.Config{}, nil
	case errors.As(err, missing) && missing.Profile == name:
		return awsclient.Config{}, fmt.Errorf("AWS_PROFILE is %.80q: want a profile of %s or %s", name, files[0], files[1])
	case err != nil:
		return awsclient.Config{}, fmt.Errorf("read the profile %.80q of %s and %s: %w", name, files[0], files[1], err)
	}
	found := awsclient.Config{Getenv: settings{shared}.getenv}
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" && hasKeys(shared) {
		found.Credentials, err = keys(ctx, shared, files, code)
	}
	return found, err
}

// filesOf returns the config and credentials files.
func filesOf(env config.EnvConfig) []string {
	return []string{
		cmp.Or(env.SharedConfigFile, config.DefaultSharedConfigFilename()),
		cmp.Or(env.SharedCredentialsFile, config.DefaultSharedCredentialsFilename()),
	}
}

// hasKeys reports whether the profile names a source of keys.
func hasKeys(p config.SharedConfig) bool {
	return p.Credentials.HasKeys() || signsOn(p) || cmp.Or(p.RoleARN, p.CredentialSource, p.CredentialProcess, p.WebIdentityTokenFile) != ""
}

// signsOn reports whether the keys come from SSO.
func signsOn(p config.SharedConfig) bool {
	return p.Source != nil && signsOn(*p.Source) || cmp.Or(p.SSOSessionName, p.SSOStartURL, p.SSOAccountID) != ""
}

// keys fetches the profile's keys once, and caches them until they expire.
func keys(
	ctx context.Context, p config.SharedConfig, files []string, code func(string) (string, error),
) (awsclient.CredentialsProvider, error) {
	wrong := func(err error) error { return fmt.Errorf("get the keys of the profile %.80q: %w", p.Profile, err) }
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(p.Profile),
		config.WithSharedConfigFiles(files[:1]), config.WithSharedCredentialsFiles(files[1:]),
		config.WithAPIOptions([]func(*middleware.Stack) error{guarded, encrypted}),
		config.WithAssumeRoleCredentialOptions(func(o *stscreds.AssumeRoleOptions) {
			o.TokenProvider = func() (string, error) { return code(sdk.ToString(o.SerialNumber)) }
		}))
	if err != nil {
		return nil, wrong(err)
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		if invalid := new(ssocreds.InvalidTokenError); signsOn(p) || errors.As(err, &invalid) {
			err = fmt.Errorf("%w; if the SSO session has expired, sign in again: aws sso login --profile %s", err, p.Profile)
		}
		return nil, wrong(err)
	}
	return awsclient.Keep(cfg.Credentials.Retrieve), nil
}

// settings supplies a profile's values for variables that the environment does not set.
type settings struct{ profile config.SharedConfig }

// Variables that take precedence over others of the same meaning.
const (
	region   = "AWS_REGION"
	endpoint = "AWS_ENDPOINT_URL"
)

// getenv is os.Getenv with the profile's value as the default.
func (s settings) getenv(name string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	switch service, ofService := strings.CutPrefix(name, endpoint+"_"); {
	case name == region && os.Getenv("AWS_DEFAULT_REGION") == "":
		return s.profile.Region
	case name == "AWS_USE_DUALSTACK_ENDPOINT":
		return state(s.profile.UseDualStackEndpoint == sdk.DualStackEndpointStateEnabled,
			s.profile.UseDualStackEndpoint == sdk.DualStackEndpointStateDisabled)
	case name == "AWS_USE_FIPS_ENDPOINT":
		return state(s.profile.UseFIPSEndpoint == sdk.FIPSEndpointStateEnabled, s.profile.UseFIPSEndpoint == sdk.FIPSEndpointStateDisabled)
	case name == endpoint:
		return s.profile.BaseEndpoint
	case ofService && os.Getenv(endpoint) == "":
		return s.profile.Services.ServiceValues[strings.ToLower(service)]["endpoint_url"]
	}
	return ""
}

func state(on, off bool) string {
	switch {
	case on:
		return "true"
	case off:
		return "false"
	}
	return ""
}
