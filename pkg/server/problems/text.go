package problems

import (
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
)

// Text returns the text of an error as it is stored and shown: one line, at most
// fleet.MaxFailure bytes.
func Text(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return strings.ToValidUTF8(text[:min(len(text), fleet.MaxFailure)], "")
}
