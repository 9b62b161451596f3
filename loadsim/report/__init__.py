"""Results for people and programs: answers, reports, charts and JUnit XML."""
