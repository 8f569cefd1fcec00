//! Which names a function's body binds: these are its own.

use std::collections::HashSet;

use ruff_python_ast::visitor::{Visitor, walk_except_handler, walk_expr, walk_pattern, walk_stmt};
use ruff_python_ast::{Comprehension, ExceptHandler, Expr, ExprContext, Pattern, Stmt};

use super::Name;

/// The names that a body binds, and those that it declares as another scope's.
#[derive(Debug, Default)]
pub(super) struct LocalBindings {
    /// The names that it binds.
    pub(super) names: HashSet<Name>,
    /// The names that `global` declares.
    pub(super) global: HashSet<Name>,
    /// The names that `nonlocal` declares.
    pub(super) nonlocal: HashSet<Name>,
    /// The body has a `yield`.
    pub(super) yields: bool,
}

impl LocalBindings {
    /// Finds the names of a function's body.
    pub(super) fn by(body: &[Stmt]) -> Self {
        let mut bound = Self::default();
        bound.visit_body(body);
        let Self {
            names,
            global,
            nonlocal,
            ..
        } = &mut bound;
        names.retain(|name| !global.contains(name) && !nonlocal.contains(name));
        bound
    }

    /// Finds the names that an expression binds, which is the body of a lambda.
    pub(super) fn by_expression(body: &Expr) -> Self {
        let mut bound = Self::default();
        bound.visit_expr(body);
        bound
    }
}

/// Returns the name that an import binds: `a` for `import a.b`.
pub(super) fn bound_by_import(module: &str) -> Name {
    Name::new(module.split('.').next().unwrap_or(module))
}

impl<'a> Visitor<'a> for LocalBindings {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(function) => {
                self.names.insert(function.name.id.clone());
                for decorator in &function.decorator_list {
                    self.visit_decorator(decorator);
                }
                let parameters = function.parameters.iter_non_variadic_params();
                for default in parameters.filter_map(|parameter| parameter.default()) {
                    self.visit_expr(default);
                }
                return;
            }
            Stmt::ClassDef(class) => {
                self.names.insert(class.name.id.clone());
                for decorator in &class.decorator_list {
                    self.visit_decorator(decorator);
                }
                if let Some(arguments) = &class.arguments {
                    self.visit_arguments(arguments);
                }
                return;
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let name = alias.asname.as_ref().map(|name| name.id.clone());
                    self.names
                        .insert(name.unwrap_or_else(|| bound_by_import(&alias.name.id)));
                }
            }
            Stmt::ImportFrom(import) => {
                for alias in &import.names {
                    let name = alias.asname.as_ref().unwrap_or(&alias.name);
                    self.names.insert(name.id.clone());
                }
            }
            Stmt::Global(global) => {
                self.global
                    .extend(global.names.iter().map(|it| it.id.clone()));
            }
            Stmt::Nonlocal(nonlocal) => {
                self.nonlocal
                    .extend(nonlocal.names.iter().map(|it| it.id.clone()));
            }
            _ => {}
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) if name.ctx != ExprContext::Load => {
                self.names.insert(name.id.clone());
            }
            Expr::Yield(_) | Expr::YieldFrom(_) => self.yields = true,
            // Its own scope.
            Expr::Lambda(_) => return,
            _ => {}
        }
        walk_expr(self, expression);
    }

    fn visit_comprehension(&mut self, comprehension: &'a Comprehension) {
        // Its targets are its own; `:=` in it binds here.
        self.visit_expr(&comprehension.iter);
        for condition in &comprehension.ifs {
            self.visit_expr(condition);
        }
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(it) = handler;
        if let Some(name) = &it.name {
            self.names.insert(name.id.clone());
        }
        walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        self.names.extend(captured(pattern).cloned());
        walk_pattern(self, pattern);
    }
}

/// Returns the name that a pattern itself captures, without those of its parts.
pub(super) fn captured(pattern: &Pattern) -> impl Iterator<Item = &Name> {
    let name = match pattern {
        Pattern::MatchAs(it) => it.name.as_ref(),
        Pattern::MatchStar(it) => it.name.as_ref(),
        Pattern::MatchMapping(it) => it.rest.as_ref(),
        _ => None,
    };
    name.map(|name| &name.id).into_iter()
}
