// Package profile finds out how AWS is called in the name of a person, as AWS's own tools
// do: by a profile of the files in the home, which may have keys, sign on (SSO), or take a
// role on. It is linked into nstance-admin alone: servers have neither a home nor a person,
// and the SDK's module for it is large.
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

// standard is the profile that nothing names.
const standard = "default"

// Load returns how AWS is called by the profile that the environment names (AWS_PROFILE), or
// by that of the name default: with its keys, and where the environment says nothing, with
// its region and its other settings of hosts. Without a profile, or with one that has no
// keys, or with keys in the environment, the credentials are nil: they are found as a server
// finds its own.
//
// The keys are asked for before Load returns, as long as ctx lasts, so that what is wrong
// with them is said at once. code asks for the code of the device that a role wants.
func Load(ctx context.Context, code func(device string) (string, error)) (awsclient.Config, error) {
	env, err := config.NewEnvConfig()
	if err != nil {
		return awsclient.Config{}, fmt.Errorf("read the settings of AWS: %w", err)
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

// filesOf are the file of settings and that of keys.
func filesOf(env config.EnvConfig) []string {
	return []string{
		cmp.Or(env.SharedConfigFile, config.DefaultSharedConfigFilename()),
		cmp.Or(env.SharedCredentialsFile, config.DefaultSharedCredentialsFilename()),
	}
}

// hasKeys reports whether the profile says where keys come from.
func hasKeys(p config.SharedConfig) bool {
	return p.Credentials.HasKeys() || signsOn(p) || cmp.Or(p.RoleARN, p.CredentialSource, p.CredentialProcess, p.WebIdentityTokenFile) != ""
}

// signsOn reports whether the keys come from the sign-on of a person.
func signsOn(p config.SharedConfig) bool {
	return p.Source != nil && signsOn(*p.Source) || cmp.Or(p.SSOSessionName, p.SSOStartURL, p.SSOAccountID) != ""
}

// keys asks for the profile's keys once, and keeps them while they are good.
func keys(
	ctx context.Context, p config.SharedConfig, files []string, code func(string) (string, error),
) (awsclient.CredentialsProvider, error) {
	wrong := func(err error) error { return fmt.Errorf("get the keys of the profile %.80q: %w", p.Profile, err) }
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(p.Profile),
		config.WithSharedConfigFiles(files[:1]), config.WithSharedCredentialsFiles(files[1:]),
		config.WithAPIOptions([]func(*middleware.Stack) error{guarded}),
		config.WithAssumeRoleCredentialOptions(func(o *stscreds.AssumeRoleOptions) {
			o.TokenProvider = func() (string, error) { return code(sdk.ToString(o.SerialNumber)) }
		}))
	if err != nil {
		return nil, wrong(err)
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		if invalid := new(ssocreds.InvalidTokenError); signsOn(p) || errors.As(err, &invalid) {
			err = fmt.Errorf("%w; if the sign-on is over, begin another one: aws sso login --profile %s", err, p.Profile)
		}
		return nil, wrong(err)
	}
	return awsclient.Keep(cfg.Credentials.Retrieve), nil
}

// settings are those of a profile for what the environment leaves open.
type settings struct{ profile config.SharedConfig }

// The variables that come before others of the same meaning.
const (
	region   = "AWS_REGION"
	endpoint = "AWS_ENDPOINT_URL"
)

// getenv is os.Getenv, with what the profile says where the environment says nothing.
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
