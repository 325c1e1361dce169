package aws

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/nstance/nstance/pkg/provider"
)

var regionName = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}$`)

// WithOptions returns cfg with the options of the shard's config on top: those of
// docs/providers/aws.md. Anything else is an error that names it.
func (cfg Config) WithOptions(values map[string]any) (Config, error) {
	o := options{Region: cfg.Region, Endpoint: cfg.Endpoint}
	if wrong := provider.Decode("options", values, &o); len(wrong) > 0 {
		return Config{}, wrong
	}
	cfg.Region, cfg.Endpoint = o.Region, o.Endpoint
	return cfg, nil
}

// CheckOptions reports, as FieldErrors, what is wrong with what WithOptions sets. It is
// pure.
func (cfg Config) CheckOptions() error {
	var wrong provider.FieldErrors
	if cfg.Region != "" && !regionName.MatchString(cfg.Region) {
		wrong.Addf("options.region", "%.80q is not valid: want the name of a region such as eu-central-1", cfg.Region)
	}
	if cfg.Endpoint != "" {
		u, err := url.Parse(cfg.Endpoint)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			wrong.Addf("options.endpoint", "%.200q is not valid: want a URL such as https://ec2.eu-central-1.amazonaws.com", cfg.Endpoint)
		}
	}
	return wrong.Err()
}

// Validate reports every problem of cfg at once.
func (cfg Config) Validate() error {
	problems := []error{cfg.Scope.Check(), cfg.CheckOptions()}
	if cfg.Logger == nil {
		problems = append(problems, errors.New("the logger is missing"))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	return nil
}
