package main

import "slices"

// whole is the inputs of a step that depends on everything.
func whole() []string { return []string{"."} }

// programs is whole without the pages, which are read by tests, but not by the programs and stories.
func programs() []string {
	return []string{".", ":(exclude,glob)docs/**/*.md", ":(exclude,glob)*.md", ":(exclude).github"}
}

// building is what each build depends on, besides its packages.
func building() []string {
	return []string{"go.mod", "go.sum", "Makefile", ".ci/tools", ".ci/plane", ".ci/build-plane", ".ko.yaml", "integration/ci"}
}

// gate returns the steps that every change has to pass: short ones, and with the same result each
// time that they run on the same tree.
func gate() []step {
	return []step{
		{name: "check", command: []string{".ci/check"}},
		target("verify").on(whole()...),
		target("build"),
		target("lint").on(whole()...),
		target("vulncheck"), // its database changes
		target("gate-built"),
		target("test", "MODULES=0").after("gate-built").in("tests").isolated().on(whole()...),
		modules().after("gate-built").in("tests").isolated(),
		story("e2e-gate").after("gate-built").in("shard").on(programs()...),
		chart().after("gate-built").in("shard"),
		story("e2e-operator-gate").after("gate-built").in("operator").isolated().on(programs()...),
	}
}

// everything returns the steps of the gate that are not repeated more thoroughly, and all others:
// those that take long, draw random numbers, measure, or need a container engine or other tools.
func everything() []step {
	return []step{
		{name: "check", command: []string{".ci/check"}},
		target("verify").on(whole()...),
		target("build"),
		target("lint").on(whole()...),
		target("vulncheck"),
		target("e2e-built"),
		target("test-race").after("e2e-built").in("tests").isolated(), // other histories each time
		story("e2e").after("e2e-built").in("shard").on(programs()...).by("docker", "version"),
		story("e2e-aws").after("e2e-built").in("shard").on(building()...).of("", "./integration/aws").of("", "./cmd/..."),
		story("e2e-operator").after("e2e-built").in("operator").isolated().on(programs()...),
		target("nix-check").in("shard").on(programs()...).by("nix", "--version"), // its stacks take the ports of e2e's
		chart().after("e2e-built").in("tools"),
		downloads().after("e2e-built").in("tools"),
		target("dashboard-check").in("tools").on(building()...).on("integration/dashboard").of("", "./cmd/nstance-admin").
			by("chromium", "--version"),
		target("e2e-images").in("images").on(building()...).on("images").of("", "./images/...").of("", "./integration/images").
			of("", "./cmd/..."),
		target("terraform-check").in("tools").on(building()...).on("terraform", "integration/terraform", ".ci/terraform").
			of("integration/terraform", "./...").by("terraform", "version"),
		target("integration").in("containers").on(programs()...).by("docker", "version"),
	}
}

// target returns the step that makes a target of the Makefile.
func target(name string, variables ...string) step {
	return step{name: name, command: append([]string{"make", "--no-print-directory", name}, variables...)}
}

// story returns the step of a target whose programs are built before, so that none changes while
// it is used. Stories mostly wait, while the tests compute.
func story(name string) step { return target(name, "BUILT=1") }

func chart() step {
	return story("chart-check").on(building()...).on("charts", "config", "integration/chart", "images").
		of("", "./integration/chart").of("", "./images/...").of("", "./cmd/nstance-operator")
}

// modules returns the step that tests what is in modules of their own. Their tests read what they
// judge: the Terraform modules and the alerts.
func modules() step {
	return target("test-modules").on(building()...).
		on("cmd/dev-k8s", "integration/terraform", "integration/monitoring", "terraform", "monitoring", "config").
		on("pkg/leaktest", "integration/ci/gotest")
}

// downloads returns the step that depends on which modules there are, and on what is built of them.
func downloads() step {
	return target("downloads-check").on(building()...).on(":(glob)**/go.mod", ":(glob)**/go.sum", "integration/operator")
}

// after has a step run after another, without which it is meaningless.
func (s step) after(name string) step {
	s.needs = name
	return s
}

// in has a step run in a lane.
func (s step) in(lane string) step {
	s.lane = lane
	return s
}

// isolated has a step run without a network beside other lanes.
func (s step) isolated() step {
	s.secluded = true
	return s
}

// on adds git pathspecs to the inputs of a step.
func (s step) on(pathspecs ...string) step {
	s.inputs = append(slices.Clone(s.inputs), pathspecs...)
	return s
}

// of adds packages to the inputs of a step, with all that they import.
func (s step) of(folder, pattern string) step {
	s.packages = append(slices.Clone(s.packages), packages{folder, pattern})
	return s
}

// by adds the version that a command prints to the inputs of a step.
func (s step) by(command ...string) step {
	s.tools = append(slices.Clone(s.tools), command)
	return s
}
