package problems_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nstance/nstance/pkg/server/problems"
)

func TestReasonOf(t *testing.T) {
	full := errors.New("no space left")
	err := problems.Because(problems.ReasonStorage, full)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"none":                  {nil, "other"},
		"without a reason":      {full, "other"},
		"with one":              {err, problems.ReasonStorage},
		"wrapped":               {fmt.Errorf("sweep: %w", err), problems.ReasonStorage},
		"joined":                {errors.Join(full, err), problems.ReasonStorage},
		"the outermost, of two": {problems.Because(problems.ReasonQuota, err), problems.ReasonQuota},
	} {
		if got := problems.ReasonOf(c.err, "other"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if !errors.Is(err, full) || err.Error() != full.Error() {
		t.Errorf("%v is not %v", err, full)
	}
}
