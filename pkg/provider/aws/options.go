package aws

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/nstance/nstance/pkg/provider"
)

var regionName = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}$`)

// WithOptions returns cfg with the options of the shard's config. None exist yet: any option is
// an error.
func (cfg Config) WithOptions(values map[string]any) (Config, error) {
	var wrong provider.FieldErrors
	for _, name := range slices.Sorted(maps.Keys(values)) {
		wrong.Addf(fmt.Sprintf("options.%.80s", name), "no such field: the provider aws has no options")
	}
	return cfg, wrong.Err()
}

// CheckOptions returns, as FieldErrors, the problems of the provider's section of a shard's
// config. It is pure.
func (cfg Config) CheckOptions() error {
	var wrong provider.FieldErrors
	if cfg.Region != "" && !regionName.MatchString(cfg.Region) {
		wrong.Addf("region", "%.80q is not valid: want a region such as eu-central-1", cfg.Region)
	}
	return wrong.Err()
}

// Validate returns all problems of cfg.
func (cfg Config) Validate() error {
	problems := []error{cfg.Scope.Check(), cfg.CheckOptions(), cfg.Leader.Check()}
	if cfg.Logger == nil {
		problems = append(problems, errors.New("the logger is missing"))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	return nil
}
