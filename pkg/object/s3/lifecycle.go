package s3

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/lifecycle"

	"github.com/nstance/nstance/pkg/object"
)

var _ object.Lifecycle = (*Store)(nil)

// noLifecycle is the code of a bucket without rules.
const noLifecycle = "NoSuchLifecycleConfiguration"

// LifecycleRules implements object.Lifecycle (GetBucketLifecycleConfiguration).
func (s *Store) LifecycleRules(ctx context.Context) (rules []object.LifecycleRule, err error) {
	var all *lifecycle.Configuration
	err = s.read(ctx, func(ctx context.Context) error {
		if err := s.ready(ctx); err != nil {
			return err
		}
		got, err := s.client.GetBucketLifecycle(ctx, s.bucket)
		var answer minio.ErrorResponse
		if errors.As(err, &answer) && document(answer) && answer.Code == noLifecycle {
			return nil
		}
		if err != nil {
			return s.explain(err, object.ErrUnknown)
		}
		all = got
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("get the lifecycle rules: %w", err)
	}
	if all == nil {
		return nil, nil
	}
	for _, r := range all.Rules {
		tagged := !r.RuleFilter.Tag.IsEmpty() || len(r.RuleFilter.And.Tags) > 0
		if does := whatDoes(r); r.Status == "Enabled" && does != "" && !tagged {
			rules = append(rules, object.LifecycleRule{ID: r.ID, Prefix: prefixOf(r), Does: does})
		}
	}
	return rules, nil
}

func prefixOf(r lifecycle.Rule) string {
	for _, prefix := range []string{r.RuleFilter.And.Prefix, r.RuleFilter.Prefix} {
		if prefix != "" {
			return prefix
		}
	}
	return r.Prefix
}

// whatDoes says what a rule does to current objects; empty: nothing.
func whatDoes(r lifecycle.Rule) string {
	when := func(days lifecycle.ExpirationDays, date lifecycle.ExpirationDate) string {
		if date.IsZero() {
			return fmt.Sprintf("after %d days", days)
		}
		return "on " + date.Format(time.DateOnly)
	}
	switch e, t := r.Expiration, r.Transition; {
	case !e.IsDaysNull() || !e.IsDateNull():
		return "deletes objects " + when(e.Days, e.Date)
	case t.StorageClass != "": // objects are small and read at once, so that no class is better
		return "moves objects to " + t.StorageClass + " " + when(t.Days, t.Date)
	}
	return ""
}
